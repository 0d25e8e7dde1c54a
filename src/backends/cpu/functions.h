/* functions.h -- elementwise.def on vectors: NAME_value(x, a, b) and NAME_grad(x, dy, a, b).
 *
 * Included once after math.h, and again after math_half.h, which has cheaper m_* functions: enough where every result
 * is stored in 16 bits. FUNCTION(name) tells the two apart. */
#define F(...) __VA_ARGS__
#define B(...) __VA_ARGS__
#define UNARY(name, NAME, formula, default_a, default_b, forward, backward) \
  static inline vr FUNCTION(name##_value)(vr x, vr a, vr b) {               \
    (void)a, (void)b;                                                       \
    forward                                                                 \
  }                                                                         \
  static inline vr FUNCTION(name##_grad)(vr x, vr dy, vr a, vr b) {         \
    (void)x, (void)a, (void)b;                                              \
    backward                                                                \
  }
#include "ops/elementwise.def"
#undef UNARY
#undef F
#undef B
