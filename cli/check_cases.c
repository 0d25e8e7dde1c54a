/* check_cases.c -- the cases that `ambi check` runs of an op: those of cases.def, one that is given, or random ones.
 *
 * A random case is one of the table with other sizes: axes that were of one size still are, so that most of them can
 * be. Those that cannot are drawn again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "check.h"
#include "values.h"

static const struct {
  const char *text;
  int is_long; /* for check_long_sums only */
} cases[] = {
#define CASE(text) {text, 0},
#define LONG(text) {text, 1},
#include "cases.def"
#undef CASE
#undef LONG
};
enum { CASES = sizeof cases / sizeof *cases };

/* Whether a tensor of the case has more elements than that */
int case_has_over(const char *text, int64_t most) {
  ambi_op op;
  char err[8];
  if (case_parse(text, AMBI_F32, &op, err, sizeof err)) return 0;
  for (int s = 0; s < AMBI_MAX_PRIMALS; s++)
    if (ambi_numel(&op.t[s]) > most) return 1;
  return 0;
}

static void list_add(case_list *l, const char *text) {
  char **more = realloc(l->text, (size_t)(l->count + 1) * sizeof *more), *copy = malloc(strlen(text) + 1);
  if (!more || !copy) {
    fprintf(stderr, "ambi check: no memory for the cases\n");
    exit(2);
  }
  l->text = more;
  l->text[l->count++] = strcpy(copy, text);
}

/* NAME=* stands for one case per value of that enum. */
static void list_expand(case_list *l, const ambi_op_info *info, const char *text) {
  char one[512], name[64] = "";
  const char *star = strstr(text, "=*");
  const ambi_attr_info *a = NULL;
  if (star) {
    const char *begin = star;
    while (begin > text && begin[-1] != ' ') begin--;
    snprintf(name, sizeof name, "%.*s", (int)(star - begin), begin);
  }
  for (int i = 0; i < info->attrs && star; i++)
    if (!strcmp(info->attr[i].name, name) && info->attr[i].type == AMBI_ATTR_ENUM) a = &info->attr[i];
  if (!a) list_add(l, text);
  for (int i = 0; a && a->names[i]; i++) {
    snprintf(one, sizeof one, "%.*s=%s%s", (int)(star - text), text, a->names[i], star + 2);
    list_add(l, one);
  }
}

/* ---- random sizes ---- */
enum { RANDOM_ELEMENTS = 20000 }; /* of a tensor, unless --elements says otherwise */

static int64_t below(rng *r, int64_t n) { return (int64_t)(rng_next(r) % (uint64_t)n); }

/* As often small as large; every second time beside a power of 2, where vectors, tiles and blocks end. */
static int64_t draw_size(rng *r, int most_bits) {
  const int64_t power = INT64_C(1) << below(r, most_bits + 1);
  if (below(r, 50) == 0) return 0;
  return below(r, 2) ? power + below(r, power) : power + below(r, 3) - (power > 1);
}

/* Other sizes for the axes of op, the same for those that have the same; 1 stays. Slots are dense. */
static void draw_sizes(ambi_op *op, rng *r) {
  int64_t was[AMBI_MAX_PRIMALS * AMBI_MAX_DIMS], is[AMBI_MAX_PRIMALS * AMBI_MAX_DIMS];
  const int most_bits = 2 + (int)below(r, 12);
  int known = 0;
  for (int s = 0; s < AMBI_MAX_PRIMALS; s++) {
    ambi_tensor *t = &op->t[s];
    for (int i = 0; i < t->ndim; i++) {
      int k = 0;
      while (k < known && was[k] != t->shape[i]) k++;
      if (k == known) was[k] = t->shape[i], is[k] = t->shape[i] > 1 && below(r, 4) ? draw_size(r, most_bits) : was[k];
      known += k == known;
      t->shape[i] = is[k];
    }
    case_set_dense(t, t->dtype);
  }
}

/* 1 with the text of a case that can be, made from one of l */
static int draw_case(const checker *ck, const case_list *l, rng *r, char *text, size_t n) {
  ambi_op op;
  char err[200];
  if (case_parse(l->text[below(r, l->count)], AMBI_NONE, &op, err, sizeof err)) return 0;
  draw_sizes(&op, r);
  case_format(&op, text, n);
  return !case_parse(text, AMBI_F32, &op, err, sizeof err) && ambi_check(ck->ref.dev, &op) == AMBI_OK &&
         !case_has_over(text, ck->elements ? ck->elements : RANDOM_ELEMENTS);
}

static case_list random_cases(const checker *ck, const ambi_op_info *info, const case_list *of) {
  case_list l = {0};
  rng r = {(uint64_t)ck->seed * 1000003 + (uint64_t)case_find_op(info->name)};
  char text[1024];
  for (int64_t tries = 0; of->count && l.count < ck->random && tries < 100 * ck->random; tries++)
    if (draw_case(ck, of, &r, text, sizeof text)) list_add(&l, text);
  return l;
}

/* ---- all ---- */
static case_list table_cases(const checker *ck, const ambi_op_info *info, int is_long) {
  case_list l = {0};
  size_t n = strlen(info->name);
  for (int i = 0; i < CASES; i++)
    if (cases[i].is_long == is_long && !strncmp(cases[i].text, info->name, n) && cases[i].text[n] == ' ' &&
        (ck->random || !(ck->elements && case_has_over(cases[i].text, ck->elements))))
      list_expand(&l, info, cases[i].text);
  return l;
}

case_list check_cases(const checker *ck, const ambi_op_info *info, int is_long) {
  case_list l = {0};
  if (ck->text && !is_long) list_add(&l, ck->text);
  if (ck->text || (ck->random && is_long)) return l;
  l = table_cases(ck, info, is_long);
  if (!ck->random) return l;
  case_list drawn = random_cases(ck, info, &l);
  case_list_free(&l);
  return drawn;
}

void case_list_free(case_list *l) {
  for (int i = 0; i < l->count; i++) free(l->text[i]);
  free(l->text);
}
