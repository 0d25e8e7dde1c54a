/* adamw on the CPU: one pass over p, g, m and v.
 *
 *   g' = scale g;   m_out = beta1 m + (1 - beta1) g';   v_out = beta2 v + (1 - beta2) g'^2
 *   p_out = p decay - m_out rate / (sqrt(v_out) root + eps);   p_copy = p_out
 *   decay = 1 - lr weight_decay,   rate = lr / (1 - beta1^t),   root = 1 / sqrt(1 - beta2^t),   t = step + 1         */
#include "backends/cpu/pointwise.h"
#include "backends/cpu/scalar.h"

enum { P = AMBI_ADAMW_P, G = AMBI_ADAMW_G, M = AMBI_ADAMW_M, V = AMBI_ADAMW_V };
enum { LR = AMBI_ADAMW_LR, STEP = AMBI_ADAMW_STEP, SCALE = AMBI_ADAMW_SCALE, SKIP = AMBI_ADAMW_SKIP };
enum { P_OUT = AMBI_ADAMW_P_OUT, M_OUT = AMBI_ADAMW_M_OUT, V_OUT = AMBI_ADAMW_V_OUT, P_COPY = AMBI_ADAMW_P_COPY };
enum { STEP_OUT = AMBI_ADAMW_STEP_OUT };

/* The constants of a step: those of the formula, REST = 1 - BETA; COPIES: p_out goes to out[3] too */
enum { G_SCALE, BETA1, REST1, BETA2, REST2, DECAY, RATE, ROOT, EPS, COPIES };

static void update(const void *const *in, void *const *out, int64_t n, const real *k, bool stream) {
  const real *p = in[0], *g = in[1], *m = in[2], *v = in[3];
  real *p_out = out[0], *m_out = out[1], *v_out = out[2], *p_copy = k[COPIES] != 0 ? out[3] : NULL;
  FOR_LANES(i, n, {
    vr gi = v_get(g + i, left) * k[G_SCALE];
    vr mi = v_get(m + i, left) * k[BETA1] + gi * k[REST1];
    vr vi_ = v_get(v + i, left) * k[BETA2] + gi * k[REST2] * gi;
    vr pi = v_get(p + i, left) * k[DECAY] - mi * k[RATE] / (v_sqrt(vi_) * k[ROOT] + k[EPS]);
    v_put_past(m_out + i, mi, left, stream);
    v_put_past(v_out + i, vi_, left, stream);
    v_put_past(p_out + i, pi, left, stream);
    if (p_copy) v_put_past(p_copy + i, pi, left, stream);
  });
}

/* A skipped step */
static void keep(const void *const *in, void *const *out, int64_t n, const real *k, bool stream) {
  size_t bytes = (size_t)n * sizeof(real);
  (void)stream;
  memmove(out[0], in[0], bytes); /* not memcpy: they may be the same */
  memmove(out[1], in[2], bytes);
  memmove(out[2], in[3], bytes);
  if (k[COPIES] != 0) memmove(out[3], in[0], bytes);
}

static void constants(const cpu_call *c, double t, real *k) {
  double beta1 = c->p->op.u.adamw.beta1, beta2 = c->p->op.u.adamw.beta2, lr = scalar_get(c, LR);
  k[G_SCALE] = reads_slot(c->p, SCALE) ? (real)scalar_get(c, SCALE) : 1;
  k[BETA1] = (real)beta1;
  k[REST1] = (real)(1 - beta1);
  k[BETA2] = (real)beta2;
  k[REST2] = (real)(1 - beta2);
  k[DECAY] = (real)(1 - lr * c->p->op.u.adamw.weight_decay);
  k[RATE] = (real)(lr / (1 - pow(beta1, t)));
  k[ROOT] = (real)(1 / sqrt(1 - pow(beta2, t)));
  k[EPS] = (real)c->p->op.u.adamw.eps;
  k[COPIES] = writes_slot(c->p, P_COPY);
}

static void forward(const cpu_call *c) {
  bool skip = reads_slot(c->p, SKIP) && scalar_get(c, SKIP) != 0;
  double step = scalar_get(c, STEP);
  cpu_call call = *c;
  if (c->at[P_OUT] == c->at[P]) call.stream = false; /* what was read is in the cache: store it there */
  pointwise w = {.c = &call,
                 .fn = skip ? keep : update,
                 .in = {P, G, M, V},
                 .ins = 4,
                 .out = {P_OUT, M_OUT, V_OUT, P_COPY},
                 .outs = writes_slot(c->p, P_COPY) ? 4 : 3,
                 .only = -1};
  constants(c, step + 1, w.params);
  if (elementwise(c->p)->all.count > 0)
    pool_run(c->threads, pointwise_tasks(&elementwise(c->p)->all), pointwise_task, &w);
  scalar_put(c, STEP_OUT, skip ? step : step + 1); /* last: it may lie over step */
}

const cpu_kernel CPU_KERNEL(adamw) = {"pointwise", NULL, forward, NULL};
