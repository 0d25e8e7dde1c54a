/* source.c -- `ambi info --source CASE`: the texts of a case's plans on CUDA, as NVRTC gets them. */
#include "source.h"

#include <stdio.h>

#include "case.h"
#include "device.h"

/* Exit status */
static int print_pass(ambi_device *dev, ambi_op op, ambi_pass pass) {
  ambi_plan *plan = NULL;
  ambi_plan_info info;
  if (case_set_pass(dev, &op, pass) != AMBI_OK || ambi_plan_create(dev, &op, &plan) != AMBI_OK ||
      ambi_plan_get_info(plan, &info) != AMBI_OK) {
    fprintf(stderr, "ambi info: %s\n", ambi_error());
    return ambi_plan_destroy(plan), 1;
  }
  const char *source = ambi_plan_source(plan);
  printf("// %s\n%s\n", info.kernel,
         source ? source : "// no text of ambi's: nothing is launched, or only cuBLASLt's kernels");
  ambi_plan_destroy(plan);
  return 0;
}

int print_source(const char *text, const char *dtype_name, const char *texts) {
  ambi_op op;
  char err[400];
  const ambi_dtype dtype = case_find_dtype(dtype_name ? dtype_name : "f32");
  if (!dtype)
    return fprintf(stderr, "ambi info: there is no dtype '%s'; there are f32, bf16, f16, f64\n", dtype_name), 2;
  if (case_parse(text, dtype, &op, err, sizeof err)) return fprintf(stderr, "ambi info: %s\n", err), 2;
  ambi_device *dev = device_open("info", "cuda", texts, 0);
  if (!dev) return 2;
  int rc = print_pass(dev, op, AMBI_FORWARD);
  if (rc == 0 && ambi_op_get_info(op.kind)->backward) rc = print_pass(dev, op, AMBI_BACKWARD);
  ambi_device_close(dev);
  return rc;
}
