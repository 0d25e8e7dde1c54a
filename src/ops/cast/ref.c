/* cast, the reference. */
#include "backends/ref/pointwise.h"

enum { X = AMBI_CAST_X, Y = AMBI_CAST_Y };

static double y_at(const ref_call *c, at_index i) { return ref_get(c, X, i); }
static double dx_at(const ref_call *c, at_index i) { return ref_get(c, AMBI_GRAD(Y), i); }

static void forward(const ref_call *c) { ref_pointwise(c, Y, y_at); }
static void backward(const ref_call *c) { ref_pointwise(c, AMBI_GRAD(X), dx_at); }

const ref_kernel cast_ref = {.forward = forward, .backward = backward};
