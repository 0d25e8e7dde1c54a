/* scalar.h -- slots of one element, or of few, read and written on the host in f64: learning rates, step counts, norms.
 */
#ifndef AMBI_CPU_SCALAR_H
#define AMBI_CPU_SCALAR_H
#include "backends/convert.h"
#include "backends/cpu/kernel.h"

/* Element i of its memory */
static inline double scalar_at(const cpu_call *c, int slot, int64_t i) {
  union {
    float f;
    double d;
    uint16_t h;
    int32_t i;
    int64_t l;
    uint8_t b;
  } v;
  ambi_dtype t = c->p->t[slot].dtype;
  memcpy(&v, (const char *)c->at[slot] + i * dtype_bytes(t), ambi_dtype_size(t));
  switch (t) {
    case AMBI_F32:
      return (double)v.f;
    case AMBI_F16:
      return (double)f16_to_f32(v.h);
    case AMBI_BF16:
      return (double)bf16_to_f32(v.h);
    case AMBI_F64:
      return v.d;
    case AMBI_I32:
      return (double)v.i;
    case AMBI_I64:
      return (double)v.l;
    default:
      return (double)v.b;
  }
}

static inline double scalar_get(const cpu_call *c, int slot) { return scalar_at(c, slot, 0); }

/* A slot that is not written is left alone. */
static inline void scalar_put(const cpu_call *c, int slot, double value) {
  ambi_dtype t = c->p->t[slot].dtype;
  float f = (float)value, odd = f64_to_odd_f32(value);
  uint16_t h = t == AMBI_F16 ? f32_to_f16(odd) : f32_to_bf16(odd);
  int64_t l = value >= 0x1p63 ? INT64_MAX : value >= -0x1p63 ? (int64_t)value : INT64_MIN; /* of NaN too */
  int32_t i = (int32_t)min64(l, INT32_MAX);
  uint8_t b = (uint8_t)min64(l, UINT8_MAX);
  const void *const as[] = {[AMBI_F32] = &f, [AMBI_F16] = &h, [AMBI_BF16] = &h, [AMBI_F64] = &value,
                            [AMBI_I32] = &i, [AMBI_I64] = &l, [AMBI_U8] = &b};
  if (writes_slot(c->p, slot)) memcpy(c->at[slot], as[t], ambi_dtype_size(t));
}

#endif
