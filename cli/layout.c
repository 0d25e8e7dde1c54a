/* layout.c -- strides a kernel has to cope with. */
#include "layout.h"

#include "case.h"

const char *const layout_name[LAYOUTS] = {"dense", "padded", "reversed", "swapped", "flipped", "assorted"};

/* Strides for axes in `order`, outermost first, with `gap` elements behind every run of the innermost. */
static void stack_axes(ambi_tensor *t, const int *order, int64_t innermost, int64_t gap) {
  int64_t stride = innermost;
  for (int k = t->ndim - 1; k >= 0; k--) {
    t->stride[order[k]] = stride;
    stride *= t->shape[order[k]] > 1 ? t->shape[order[k]] : 1;
    if (k == t->ndim - 1) stride += gap;
  }
}

void layout_apply(ambi_tensor *t, layout how, unsigned salt) {
  int order[AMBI_MAX_DIMS] = {0}, n = t->ndim;
  if (how == ASSORTED) how = (layout)(salt % ASSORTED);
  if (how == AS_GIVEN || n == 0) return;
  for (int a = 0; a < n; a++)
    if (t->stride[a] == 0) return;
  for (int a = 0; a < n; a++) order[a] = how == REVERSED ? n - 1 - a : a;
  if (how == SWAPPED && n >= 2) order[n - 2] = n - 1, order[n - 1] = n - 2;
  stack_axes(t, order, n == 1 && how != PADDED ? 3 : 1, how == REVERSED ? 2 : how == PADDED ? 5 : 0);
  if (how == FLIPPED) t->stride[n - 1] = -t->stride[n - 1];
}

void layout_apply_op(ambi_op *op, layout how) {
  const ambi_op_info *info = ambi_op_get_info(op->kind);
  for (int s = 0; s < AMBI_MAX_PRIMALS; s++) {
    int constant = s < info->slots && (info->slot[s].flags & AMBI_SLOT_NO_GRAD);
    if (how == ASSORTED && op->t[s].dtype != AMBI_NONE && op->pass == AMBI_BACKWARD && op->grad[s].dtype == AMBI_NONE &&
        !constant)
      op->grad[s] = op->t[s];
    if (op->t[s].dtype != AMBI_NONE) layout_apply(&op->t[s], how, (unsigned)(s + 1));
    if (op->grad[s].dtype != AMBI_NONE) layout_apply(&op->grad[s], how, (unsigned)(2 * s + 3));
  }
}
