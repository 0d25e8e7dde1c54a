/* pack_kernels.c -- the table, and calls made from it. Values are the same on every machine. */
#include "pack_kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- describing: op and params ---- */
static uint32_t word_of(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

static ambi_tensor matrix(int64_t rows, int64_t cols) { return ambi_dense(AMBI_F32, 2, (int64_t[]){rows, cols}); }
static ambi_tensor vector(int64_t n) { return ambi_dense(AMBI_F32, 1, &n); }

static int describe_gated(const pack_def *d, const int64_t *n, ambi_op *op, uint32_t *words) {
  op->t[AMBI_GATED_V] = op->t[AMBI_GATED_G] = matrix(n[0], n[1]);
  op->u.gated.gate = d->function;
  op->u.gated.beta = d->function == AMBI_SWIGLU ? 1.25 : 0;
  words[0] = (uint32_t)n[0], words[1] = (uint32_t)n[1], words[2] = word_of(1.25F);
  return d->function == AMBI_SWIGLU ? 3 : 2;
}

static int describe_unary(const pack_def *d, const int64_t *n, ambi_op *op, uint32_t *words) {
  op->t[AMBI_UNARY_X] = vector(n[0]);
  op->u.unary.function = d->function;
  words[0] = (uint32_t)n[0];
  return 1;
}

static int describe_rmsnorm(const pack_def *d, const int64_t *n, ambi_op *op, uint32_t *words) {
  (void)d;
  op->t[AMBI_RMSNORM_X] = matrix(n[0], n[1]);
  op->t[AMBI_RMSNORM_W] = vector(n[1]);
  if (op->pass == AMBI_FORWARD) op->want = AMBI_BIT(AMBI_RMSNORM_RSTD);
  op->u.rmsnorm.eps = (double)1e-5F;
  words[0] = word_of(1e-5F), words[1] = (uint32_t)n[1], words[2] = (uint32_t)n[0];
  return 3;
}

static int describe_layernorm(const pack_def *d, const int64_t *n, ambi_op *op, uint32_t *words) {
  (void)d;
  op->t[AMBI_LAYERNORM_X] = matrix(n[0], n[1]);
  op->t[AMBI_LAYERNORM_W] = op->t[AMBI_LAYERNORM_B] = vector(n[1]);
  op->u.layernorm.eps = (double)1e-5F;
  words[0] = word_of(1e-5F), words[1] = (uint32_t)n[1], words[2] = (uint32_t)n[0];
  return 3;
}

static int describe_softmax(const pack_def *d, const int64_t *n, ambi_op *op, uint32_t *words) {
  (void)d;
  op->t[AMBI_SOFTMAX_X] = matrix(n[0], n[1]);
  if (op->pass == AMBI_BACKWARD) op->t[AMBI_SOFTMAX_Y] = matrix(n[0], n[1]);
  op->u.softmax.scale = 1.5;
  words[0] = (uint32_t)n[0], words[1] = (uint32_t)n[1], words[2] = word_of(1.5F);
  return 3;
}

static int describe_linear(const pack_def *d, const int64_t *n, ambi_op *op, uint32_t *words) {
  (void)d;
  op->t[AMBI_LINEAR_X] = matrix(n[0], n[2]);
  op->t[AMBI_LINEAR_W] = matrix(n[1], n[2]);
  op->t[AMBI_LINEAR_B] = vector(n[1]);
  for (int i = 0; i < 3; i++) words[i] = (uint32_t)n[i];
  return 3;
}

/* x is (batch, L, heads, D); the op wants the heads first. */
static int describe_rope(const pack_def *d, const int64_t *n, ambi_op *op, uint32_t *words) {
  (void)d;
  int64_t batch = n[0], L = n[1], H = n[2], D = n[3];
  op->t[AMBI_ROPE_X] = (ambi_tensor){AMBI_F32, 4, {batch, H, L, D}, {L * H * D, D, H * D, 1}};
  op->t[AMBI_ROPE_Y] = op->t[AMBI_ROPE_X];
  op->u.rope.theta = 10000;
  words[0] = word_of(10000), words[1] = (uint32_t)L, words[2] = (uint32_t)D, words[3] = (uint32_t)H;
  words[4] = (uint32_t)batch;
  return 5;
}

/* ---- the table ---- */
#define S(slot) ((slot) + 1)
#define G(slot) (AMBI_GRAD(slot) + 1)
#define A       [AMBI_PACK_A]
#define B       [AMBI_PACK_B]
#define OUT     [AMBI_PACK_OUT]
#define SCRATCH [AMBI_PACK_SCRATCH]
#define WEIGHT  [AMBI_PACK_WEIGHT]

#define ROWS "\"rows\", \"hidden_dim\""
#define SIZE "\"default\": 0, \"min\": 0"

static const pack_param swiglu_params[] = {
    {"num_elements", "u32", SIZE}, {"hidden_dim", "u32", SIZE}, {"beta", "f32", "\"default\": 1"}, {0}};
static const pack_param gate_params[] = {{"num_elements", "u32", SIZE}, {"hidden_dim", "u32", SIZE}, {0}};
static const pack_param unary_params[] = {{"num_elements", "u32", SIZE}, {0}};
static const pack_param norm_params[] = {
    {"eps", "f32", "\"default\": 1e-5, \"min\": 0"}, {"hidden_dim", "u32", SIZE}, {"num_elements", "u32", SIZE}, {0}};
static const pack_param softmax_params[] = {
    {"num_elements", "u32", SIZE}, {"hidden_dim", "u32", SIZE}, {"scale", "f32", "\"default\": 1"}, {0}};
static const pack_param linear_params[] = {
    {"rows", "u32", SIZE}, {"out_features", "u32", SIZE}, {"in_features", "u32", SIZE}, {0}};
static const pack_param rope_params[] = {{"theta", "f32", "\"default\": 10000"},
                                         {"seq_len", "u32", SIZE},
                                         {"head_dim", "u32", SIZE},
                                         {"num_heads", "u32", SIZE},
                                         {"batch_size", "u32", SIZE},
                                         {0}};

static const pack_tensor gate_in[] = {{"x", ROWS}, {"gate", ROWS}, {0}};
static const pack_tensor x_rows[] = {{"x", ROWS}, {0}}, y_rows[] = {{"y", ROWS}, {0}};
static const pack_tensor x_flat[] = {{"x", "\"num_elements\""}, {0}}, y_flat[] = {{"y", "\"num_elements\""}, {0}};
static const pack_tensor norm_in[] = {{"x", ROWS}, {"weight", "\"hidden_dim\""}, {0}};
static const pack_tensor linear_in[] = {
    {"x", "\"rows\", \"in_features\""}, {"w", "\"out_features\", \"in_features\""}, {0}};
static const pack_tensor linear_out[] = {{"y", "\"rows\", \"out_features\""}, {0}};
#define HEADS "\"batch_size\", \"seq_len\", \"num_heads\", \"head_dim\""
static const pack_tensor rope_in[] = {{"x", HEADS}, {0}}, rope_out[] = {{"y", HEADS}, {0}};

#define GATED(ID, TITLE, GATE, PARAMS)                                                            \
  {                                                                                               \
    ID, TITLE, "activation", AMBI_GATED, GATE, 0,                                                 \
        {{A = {S(AMBI_GATED_V)}, B = {S(AMBI_GATED_G)}, OUT = {S(AMBI_GATED_Y)}},                 \
         {A = {G(AMBI_GATED_Y)}, B = {S(AMBI_GATED_V), S(AMBI_GATED_G)}, OUT = {G(AMBI_GATED_V)}, \
          SCRATCH = {G(AMBI_GATED_G)}}},                                                          \
        PARAMS, gate_in, y_rows, {3, 11}, describe_gated                                          \
  }
#define UNARY(ID, TITLE, FUNCTION)                                                 \
  {                                                                                \
    ID, TITLE, "activation", AMBI_UNARY, FUNCTION, 0,                              \
        {{A = {S(AMBI_UNARY_X)}, OUT = {S(AMBI_UNARY_Y)}},                         \
         {A = {G(AMBI_UNARY_Y)}, B = {S(AMBI_UNARY_X)}, OUT = {G(AMBI_UNARY_X)}}}, \
        unary_params, x_flat, y_flat, {33}, describe_unary                         \
  }

const pack_def pack_defs[] = {
    GATED("swiglu_f32", "SwiGLU: x gate sigmoid(beta gate)", AMBI_SWIGLU, swiglu_params),
    GATED("glu_f32", "GLU: x sigmoid(gate)", AMBI_GLU, gate_params),
    GATED("reglu_f32", "ReGLU: x max(gate, 0)", AMBI_REGLU, gate_params),
    GATED("geglu_f32", "GeGLU: x gelu(gate), erf form", AMBI_GEGLU, gate_params),
    UNARY("silu_f32", "SiLU: x sigmoid(x)", AMBI_SILU),
    UNARY("gelu_f32", "GELU, erf form", AMBI_GELU),
    {"rmsnorm_f32",
     "RMSNorm: x / rms(x) weight",
     "normalization",
     AMBI_RMSNORM,
     0,
     1,
     {{A = {S(AMBI_RMSNORM_X)}, B = {S(AMBI_RMSNORM_W)}, OUT = {S(AMBI_RMSNORM_Y)}, SCRATCH = {S(AMBI_RMSNORM_RSTD)}},
      {A = {G(AMBI_RMSNORM_Y)}, B = {S(AMBI_RMSNORM_X)}, OUT = {G(AMBI_RMSNORM_X)}, SCRATCH = {G(AMBI_RMSNORM_W)},
       WEIGHT = {S(AMBI_RMSNORM_W)}}},
     norm_params,
     norm_in,
     y_rows,
     {3, 11},
     describe_rmsnorm},
    {"layernorm_f32",
     "LayerNorm: (x - mean) / std weight + bias",
     "normalization",
     AMBI_LAYERNORM,
     0,
     0,
     {{A = {S(AMBI_LAYERNORM_X)}, B = {S(AMBI_LAYERNORM_W), S(AMBI_LAYERNORM_B)}, OUT = {S(AMBI_LAYERNORM_Y)}},
      {A = {G(AMBI_LAYERNORM_Y)}, B = {S(AMBI_LAYERNORM_X)}, OUT = {G(AMBI_LAYERNORM_X)},
       SCRATCH = {G(AMBI_LAYERNORM_W), G(AMBI_LAYERNORM_B)}, WEIGHT = {S(AMBI_LAYERNORM_W)}}},
     norm_params,
     norm_in,
     y_rows,
     {3, 11},
     describe_layernorm},
    {"softmax_f32",
     "Softmax of scale x along rows",
     "attention",
     AMBI_SOFTMAX,
     0,
     0,
     {{A = {S(AMBI_SOFTMAX_X)}, OUT = {S(AMBI_SOFTMAX_Y)}},
      {A = {G(AMBI_SOFTMAX_Y)}, B = {S(AMBI_SOFTMAX_Y)}, OUT = {G(AMBI_SOFTMAX_X)}}},
     softmax_params,
     x_rows,
     y_rows,
     {3, 11},
     describe_softmax},
    {"linear_f32",
     "Linear: x W^T + bias",
     "custom",
     AMBI_LINEAR,
     0,
     0,
     {{A = {S(AMBI_LINEAR_X)}, B = {S(AMBI_LINEAR_W), S(AMBI_LINEAR_B)}, OUT = {S(AMBI_LINEAR_Y)}},
      {A = {G(AMBI_LINEAR_Y)}, B = {S(AMBI_LINEAR_X), S(AMBI_LINEAR_W)}, OUT = {G(AMBI_LINEAR_X)},
       SCRATCH = {G(AMBI_LINEAR_W), G(AMBI_LINEAR_B)}}},
     linear_params,
     linear_in,
     linear_out,
     {3, 5, 7},
     describe_linear},
    {"rope_f32",
     "Rotary position embedding",
     "positional_encoding",
     AMBI_ROPE,
     0,
     0,
     {{A = {S(AMBI_ROPE_X)}, OUT = {S(AMBI_ROPE_Y)}}, {A = {G(AMBI_ROPE_Y)}, OUT = {G(AMBI_ROPE_X)}}},
     rope_params,
     rope_in,
     rope_out,
     {2, 3, 2, 6},
     describe_rope},
};
const int pack_def_count = sizeof pack_defs / sizeof *pack_defs;

const pack_def *pack_def_named(const char *id) {
  for (int i = 0; i < pack_def_count; i++)
    if (strcmp(pack_defs[i].id, id) == 0) return &pack_defs[i];
  return NULL;
}

/* ---- cases ---- */
typedef struct {
  pack_case *c;
  ambi_device *dev;
  ambi_plan *plan;
  ambi_buf slots[AMBI_SLOTS], workspace;
} job;

static float random_value(uint32_t *state) { /* in (-2, 2), 12 bits */
  *state = *state * 1664525U + 1013904223U;
  return (float)(int32_t)(*state >> 19) / 2048.0F - 2.0F;
}

static uint64_t elements(const job *j, int slot) {
  ambi_tensor t = ambi_plan_tensor(j->plan, slot);
  return t.dtype == AMBI_NONE ? 0 : (uint64_t)ambi_numel(&t);
}

/* Where the slots of a region lie, and how large it is. */
static int take_region(job *j, int region, const int8_t slots[2], uint32_t *state) {
  pack_case *c = j->c;
  uint64_t n = 0, first[2];
  for (int i = 0; i < 2 && slots[i]; i++) first[i] = n, n += elements(j, slots[i] - 1);
  if (n == 0) return 1;
  float *want = calloc(n, sizeof *want), *at = calloc(n, sizeof *at);
  c->want[region] = want;
  c->call.at[region] = at;
  c->call.bytes[region] = n * sizeof *at;
  if (!want || !at) return 0;
  int input = region != AMBI_PACK_OUT && region != AMBI_PACK_SCRATCH;
  for (uint64_t i = 0; i < n && input; i++) at[i] = random_value(state);
  for (int i = 0; i < 2 && slots[i]; i++) j->slots[slots[i] - 1].data = (input ? at : want) + first[i];
  return 1;
}

/* softmax's backward reads what forward gives */
static void soften(pack_case *c, const int64_t *dims) {
  float *y = c->call.at[AMBI_PACK_B];
  for (int64_t r = 0; r < dims[0]; r++) {
    double sum = 0;
    float *row = y + r * dims[1];
    for (int64_t i = 0; i < dims[1]; i++) sum += exp((double)row[i]);
    for (int64_t i = 0; i < dims[1]; i++) row[i] = (float)(exp((double)row[i]) / sum);
  }
}

static int run_case(job *j, ambi_op *op) {
  ambi_plan_info info;
  pack_case *c = j->c;
  uint32_t state = 1;
  int good = ambi_plan_create(j->dev, op, &j->plan) == AMBI_OK && ambi_plan_get_info(j->plan, &info) == AMBI_OK;
  for (int r = 0; r < AMBI_PACK_REGIONS && good; r++)
    good = r == AMBI_PACK_PARAMS || take_region(j, r, c->def->layout[op->pass][r], &state);
  if (good && info.workspace) good = ambi_alloc(j->dev, info.workspace, &j->workspace) == AMBI_OK;
  if (good && op->kind == AMBI_SOFTMAX && op->pass == AMBI_BACKWARD) soften(c, op->t[0].shape);
  good = good && ambi_run(j->plan, NULL, j->slots, AMBI_SLOTS, j->workspace) == AMBI_OK;
  if (!good) fprintf(stderr, "ambi: %s: %s\n", c->def->id, ambi_error());
  return good;
}

int pack_case_make(pack_case *c, const pack_def *d, ambi_pass pass, const int64_t *dims, ambi_device *dev) {
  ambi_op op = {.kind = d->kind, .pass = pass};
  job j = {.c = c, .dev = dev};
  *c = (pack_case){.def = d};
  c->call.pass = pass;
  int words = d->describe(d, dims, &op, c->words);
  c->call.at[AMBI_PACK_PARAMS] = c->words;
  c->call.bytes[AMBI_PACK_PARAMS] = (size_t)words * sizeof(uint32_t);
  int sums = d->category[0] != 'a' || d->kind == AMBI_SOFTMAX; /* all but activations */
  for (int i = 0; i < PACK_DIMS && sums && d->kind != AMBI_ROPE; i++)
    c->terms = dims[i] > c->terms ? dims[i] : c->terms;
  int good = run_case(&j, &op);
  float *scratch = c->want[AMBI_PACK_SCRATCH];
  for (size_t i = 0; i < c->call.bytes[AMBI_PACK_SCRATCH] / 4 && good && d->scratch_inverted && pass == AMBI_FORWARD;
       i++)
    scratch[i] = 1 / scratch[i];
  if (j.workspace.data) ambi_free(dev, j.workspace);
  ambi_plan_destroy(j.plan);
  return good;
}

void pack_case_free(pack_case *c) {
  for (int r = 0; r < AMBI_PACK_REGIONS; r++) {
    if (r != AMBI_PACK_PARAMS) free(c->call.at[r]);
    free(c->want[r]);
  }
}

double pack_case_tolerance(const pack_case *c, int region) {
  double most = 0;
  for (size_t i = 0; i < c->call.bytes[region] / sizeof(float); i++)
    most = fmax(most, fabs((double)c->want[region][i]));
  return ldexp((double)(8 * (c->terms + 8)) * fmax(most, 1e-3), -24);
}

int pack_case_agrees(const pack_case *c) {
  for (int r = AMBI_PACK_OUT; r <= AMBI_PACK_SCRATCH; r++) {
    const float *got = c->call.at[r], *want = c->want[r];
    double tolerance = pack_case_tolerance(c, r);
    for (size_t i = 0; i < c->call.bytes[r] / sizeof(float); i++)
      if (!(fabs((double)got[i] - (double)want[i]) <= tolerance)) return 0;
  }
  return 1;
}
