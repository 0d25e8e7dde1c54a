/* texts.c -- the texts of a plan: its own, that of a kernel apart, and those of its matrix products.
 *
 * A plan waits for all of them, so that a run does not: those that are not in memory are found on disk or compiled side
 * by side, each by a thread of its own, as one kernel is optimised by one thread of the compiler's.                 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cuda.h"

char *cuda_join(const char *const *pieces, int n) {
  size_t bytes = 1;
  for (int i = 0; i < n; i++) bytes += strlen(pieces[i]) + 1;
  char *joined = malloc(bytes), *at = joined;
  for (int i = 0; i < n && joined; i++) at += sprintf(at, "%s\n", pieces[i]);
  return joined;
}

ambi_status cuda_add_text(cuda_plan *k, char *source, bool hopper, int *text) {
  const char *op = k->p->def->info.name;
  if (!source) return fail(AMBI_NO_MEMORY, "%s: no memory for its text", op);
  for (*text = PRODUCT_TEXTS; *text < k->texts; ++*text)
    if (k->text[*text].hopper == hopper && !strcmp(k->text[*text].source, source)) return free(source), AMBI_OK;
  if (k->texts == MAX_TEXTS) return free(source), fail(AMBI_UNSUPPORTED, "%s: its plan has too many texts", op);
  k->text[k->texts++] = (cuda_text){.source = source, .hopper = hopper};
  return AMBI_OK;
}

/* ---- side by side ---- */
typedef struct {
  cuda_device *dev;
  cuda_text *text;
  pthread_t thread;
  bool started;
  ambi_status status;
  char error[ERROR_BYTES]; /* its thread's last sentence, for the one that makes the plan */
} job;

static ambi_status get_inside(job *j) {
  TRY(cuda_enter(j->dev));
  const ambi_status s = module_get(j->dev, j->text);
  cuda_leave(j->dev);
  return s;
}

static void *do_job(void *context) {
  job *j = context;
  j->status = get_inside(j);
  if (j->status != AMBI_OK) snprintf(j->error, sizeof j->error, "%s", ambi_error());
  return NULL;
}

/* The last job is this thread's, and any that no thread could be had for. */
static ambi_status do_jobs(job *jobs, int n) {
  ambi_status s = AMBI_OK;
  for (int i = 0; i < n - 1; i++) jobs[i].started = pthread_create(&jobs[i].thread, NULL, do_job, &jobs[i]) == 0;
  for (int i = 0; i < n; i++)
    if (!jobs[i].started) do_job(&jobs[i]);
  for (int i = 0; i < n; i++)
    if (jobs[i].started) pthread_join(jobs[i].thread, NULL);
  for (int i = 0; i < n && s == AMBI_OK; i++)
    if (jobs[i].status != AMBI_OK) s = fail(jobs[i].status, "%s", jobs[i].error);
  return s;
}

ambi_status cuda_get_texts(cuda_plan *k) {
  job jobs[MAX_TEXTS];
  int n = 0;
  for (cuda_text *t = k->text; t < k->text + k->texts; t++)
    if (t->source && !module_find(k->dev, t)) jobs[n++] = (job){.dev = k->dev, .text = t};
  return do_jobs(jobs, n);
}

void cuda_free_texts(cuda_plan *k) {
  for (cuda_text *t = k->text; t < k->text + k->texts; t++)
    if (!t->module) free(t->source);
  free(k->shown);
}

/* ---- what ambi_plan_source gives ---- */
ambi_status cuda_show_texts(cuda_plan *k) {
  static const char *const between[] = {[OWN_TEXT] = "",
                                        [APART_TEXT] = "// ---- a kernel of its own, compiled by itself",
                                        [PRODUCT_TEXTS] = "// ---- a text of its matrix products, compiled by itself"};
  const char *pieces[2 * MAX_TEXTS];
  int n = 0;
  for (int i = 0; i < k->texts; i++) {
    if (!k->text[i].source) continue;
    if (n > 0) pieces[n++] = between[i < PRODUCT_TEXTS ? i : PRODUCT_TEXTS];
    pieces[n++] = k->text[i].source;
  }
  if (n <= 1) return AMBI_OK;
  k->shown = cuda_join(pieces, n);
  return k->shown ? AMBI_OK : fail(AMBI_NO_MEMORY, "cuda: no memory for a plan's texts");
}

const char *cuda_texts_shown(const cuda_plan *k) {
  if (k->shown) return k->shown;
  for (const cuda_text *t = k->text; t < k->text + k->texts; t++)
    if (t->source) return t->source;
  return NULL;
}
