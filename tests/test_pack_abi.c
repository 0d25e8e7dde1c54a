/* test_pack_abi.c -- compiled modules called as the ABI says, with descriptors no host would write: each is answered
 * with a code, and none traps. Needs Wasmtime and AMBI_PACK_TEST, a folder with a pack and the key it is signed with.
 */
#include <stdlib.h>

#include "pack/pack.h"
#include "test.h"

static ambi_pack_host *host;
static uint8_t *memory;
static instance *in;
static uint32_t base; /* of the host's pages */
enum { PAGES = 16, ROOM = PAGES * 65536 };

static void quiet(void *context, const char *check, int passed, const char *sentence) {
  (void)context, (void)check, (void)passed, (void)sentence;
}

/* ---- calls ---- */
/* kernel_forward(at) or another export of one or two numbers; -1: it trapped */
static int32_t call(const wasmtime_extern *f, uint32_t a, uint32_t b) {
  wasmtime_value v[2] = {{.i32 = (int32_t)a}, {.i32 = (int32_t)b}};
  wasm_trap *trap = NULL;
  host->w.wasmtime_context_set_epoch_deadline(in->context, 2000);
  ticker_begin(host);
  wasmtime_error *e = host->w.wasmtime_func_call_unchecked(in->context, f->of, v, 2, &trap);
  ticker_end(host);
  memory = host->w.wasmtime_memory_data(in->context, in->memory.of);
  if (e) host->w.wasmtime_error_delete(e);
  if (trap) host->w.wasm_trap_delete(trap);
  return e || trap ? -1 : v[0].i32;
}

static int32_t forward(const uint32_t d[10]) {
  memcpy(memory + base, d, 40);
  return call(&in->forward, base, 0);
}

/* ---- swiglu: every way to be wrong ---- */
enum { A, A_SIZE, B, B_SIZE, OUT, OUT_SIZE, SCRATCH, SCRATCH_SIZE, PARAMS, PARAMS_SIZE };

/* 3 rows of 5: a, b, out and params one after another */
static void good(uint32_t d[10]) {
  uint32_t params[3] = {3, 5, 0x3f800000}, at = base + 64;
  const uint32_t right[10] = {at, 60, at + 64, 60, at + 128, 60, at + 192, 0, at + 256, 12};
  memcpy(d, right, sizeof right);
  memcpy(memory + d[PARAMS], params, sizeof params);
}

static void wrong_words(void) {
  static const struct {
    const char *what;
    int word;
    uint32_t value;
    int32_t code;
  } cases[] = {{"a at 2 GB", A, 0x80000000, 1},
               {"a past the end", A, 0xfffffffc, 1},
               {"a unaligned", A, 0x20001, 1},
               {"a in the module's own memory", A, 64, 1},
               {"a of 4 GB", A_SIZE, 0xffffffff, 1},
               {"a of another size", A_SIZE, 56, 1},
               {"a empty", A_SIZE, 0, 1},
               {"b at 2 GB", B, 0x80000000, 1},
               {"b of another size", B_SIZE, 64, 1},
               {"out at 2 GB", OUT, 0x80000000, 2},
               {"out in the module's own memory", OUT, 1024, 2},
               {"out at 0", OUT, 0, 2},
               {"out of another size", OUT_SIZE, 64, 2},
               {"out unaligned", OUT, 0x20002, 2},
               {"scratch past the end", SCRATCH_SIZE, 0xfffffffc, 2},
               {"params at 2 GB", PARAMS, 0x80000000, 3},
               {"params that wrap around", PARAMS, 0xfffffff8, 3},
               {"params in the module's own memory", PARAMS, 1024, 3},
               {"params too short", PARAMS_SIZE, 8, 3},
               {"params too long", PARAMS_SIZE, 16, 3},
               {"no params, and none before", PARAMS_SIZE, 0, 3}};
  uint32_t d[10];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    good(d);
    d[cases[i].word] = cases[i].value;
    int32_t code = forward(d);
    CHECK(code == cases[i].code, "%s: expected %d, got %d", cases[i].what, cases[i].code, code);
  }
}

static void wrong_params(void) {
  static const struct {
    const char *what;
    uint32_t params[3];
    int32_t code;
  } cases[] = {{"no columns", {3, 0, 0x3f800000}, 3},
               {"more rows than a", {4, 5, 0x3f800000}, 1},
               {"2^64 elements, which are 0 in 64 bits times 4", {0x80000000, 0x80000000, 0x3f800000}, 1},
               {"2^32 - 1 squared", {0xffffffff, 0xffffffff, 0x3f800000}, 1},
               {"beta NaN", {3, 5, 0x7fc00000}, 3},
               {"beta infinite", {3, 5, 0xff800000}, 3},
               {"elements counted one by one", {15, 5, 0x3f800000}, 0},
               {"beta 0", {3, 5, 0}, 0}};
  uint32_t d[10];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    good(d);
    memcpy(memory + d[PARAMS], cases[i].params, sizeof cases[i].params);
    int32_t code = forward(d);
    CHECK(code == cases[i].code, "%s: expected %d, got %d", cases[i].what, cases[i].code, code);
  }
}

static void overlaps(void) {
  uint32_t d[10];
  good(d);
  d[OUT] = d[A];
  CHECK(forward(d) == 0, "out over a, exactly");
  good(d);
  d[OUT] = d[B];
  CHECK(forward(d) == 0, "out over b, exactly");
  good(d);
  d[OUT] = d[A] + 4;
  CHECK(forward(d) == 2, "out over part of a");
  good(d);
  d[B] = d[A];
  CHECK(forward(d) == 0, "a and b may be one");
  good(d);
  memory[base] = 0;
  CHECK(call(&in->forward, 0xffffffff, 0) == 1 && call(&in->forward, 0x7fffffff, 0) == 1, "a descriptor far away");
  CHECK(call(&in->forward, 64, 0) == 1, "a descriptor in the module's own memory");
  CHECK(forward(d) == 0, "and then a good one");
}

/* beta = 0: x gate / 2 */
static void right_answer(void) {
  uint32_t d[10], params[3] = {3, 5, 0};
  good(d);
  memcpy(memory + d[PARAMS], params, sizeof params);
  float *x = (float *)(void *)(memory + d[A]), *gate = (float *)(void *)(memory + d[B]);
  for (int i = 0; i < 15; i++) x[i] = (float)i, gate[i] = (float)(7 - i);
  CHECK(forward(d) == 0, "beta 0");
  const float *out = (const float *)(const void *)(memory + d[OUT]);
  bool same = true;
  for (int i = 0; i < 15; i++) same = same && out[i] == (float)i * (float)(7 - i) / 2;
  CHECK(same, "with beta 0, the gate is half of itself");
}

/* ---- the other exports ---- */
static void information(const char *id, const wasmtime_extern *info) {
  const uint32_t at = base + 512;
  memset(memory + at, 0xee, 24);
  CHECK(call(info, at, 0) == 0, "%s: kernel_info", id);
  uint32_t name, length;
  uint16_t version[3];
  memcpy(&name, memory + at, 4);
  memcpy(&length, memory + at + 4, 4);
  memcpy(version, memory + at + 8, 6);
  CHECK(length == strlen(id) && memcmp(memory + name, id, length) == 0, "%s: its name", id);
  CHECK(version[0] * 10000U + version[1] * 100U + version[2] == ambi_version(), "%s: its version", id);
  CHECK(memory[at + 14] == 1 && memory[at + 15] == 0 && memory[at + 16] == 0xee, "%s: 16 bytes, backward", id);
  CHECK(call(info, 0xfffffff8, 0) == 2 && call(info, 8, 0) == 2, "%s: information nowhere", id);
}

static void init_and_cleanup(const wasmtime_extern *init, const wasmtime_extern *cleanup) {
  uint32_t d[10];
  good(d);
  CHECK(call(init, d[PARAMS], 12) == 0, "kernel_init takes params");
  CHECK(call(init, 0xfffffff8, 12) == 3 && call(init, d[PARAMS], 11) == 3, "kernel_init refuses others");
  d[PARAMS_SIZE] = 0;
  CHECK(forward(d) == 0, "a call without params uses those");
  CHECK(call(cleanup, 0, 0) == 0, "kernel_cleanup");
  CHECK(forward(d) == 3, "and after kernel_cleanup there are none");
}

/* softmax_f32: four words say "the logarithm"; three after them do not. */
static void shorter_init(const wasmtime_extern *init) {
  uint32_t d[10] = {base + 64, 20, base + 256, 0, base + 128, 20, base + 256, 0, base + 192, 0};
  const uint32_t params[4] = {1, 5, 0x3f800000, 1};
  memset(memory + d[A], 0, 20);
  memcpy(memory + d[PARAMS], params, sizeof params);
  CHECK(call(init, d[PARAMS], 16) == 0 && call(init, d[PARAMS], 12) == 0, "kernel_init twice");
  CHECK(forward(d) == 0, "a call without params");
  float first;
  memcpy(&first, memory + d[OUT], sizeof first);
  CHECK(first > 0, "the fourth word of earlier params is kept: %g", (double)first);
}

/* ---- random descriptors ---- */
static uint64_t state = 1;
static uint32_t chance(void) {
  state = state * 6364136223846793005U + 1442695040888963407U;
  return (uint32_t)(state >> 33);
}

static void random_calls(const char *id) {
  int codes[7] = {0}, odd = 0;
  for (int i = 0; i < 20000 && !odd; i++) {
    uint32_t d[10], size = 4 * (1 + chance() % 64);
    for (int k = 0; k < 10; k++) d[k] = k % 2 ? size : base + 64 + 4 * (chance() % 2000);
    for (uint32_t k = chance() % 4; k > 0; k--) d[chance() % 10] = chance() << chance() % 3;
    for (uint32_t k = 0; k < 6; k++) ((uint32_t *)(void *)(memory + base + 64))[chance() % 2000] = chance() % 16;
    d[PARAMS_SIZE] = 4 * (1 + chance() % 6);
    memcpy(memory + base, d, 40);
    int32_t code = call(chance() % 2 ? &in->forward : &in->backward, base, 0);
    if (code < 0 || code > 6)
      odd = 1;
    else
      codes[code]++;
  }
  CHECK(!odd && codes[6] == 0, "%s: random descriptors: a trap or an internal error", id);
}

/* ---- all kernels ---- */
/* A fresh instance with pages of ours, and three exports more than a host needs. */
static bool begin(ambi_pack_kernel *k, wasmtime_extern others[3]) {
  static const char *const names[] = {"kernel_init", "kernel_info", "kernel_cleanup"};
  const wasmtime_api *w = &host->w;
  wasmtime_instance again;
  wasm_trap *trap = NULL;
  uint64_t before;
  ticker_begin(host);
  ambi_status s = instance_new(k, k->m->ticks, &in);
  ticker_end(host);
  if (!CHECK(s == AMBI_OK, "%s: %s", k->m->id, ambi_error())) return false;
  /* the same store again, for the exports that instance_new does not keep */
  w->wasmtime_store_limiter(in->store, -1, -1, -1, -1, -1);
  wasmtime_error *e = w->wasmtime_instance_new(in->context, k->code->module, NULL, 0, &again, &trap);
  if (!CHECK(!e && !trap, "%s: an instance", k->m->id)) return false;
  bool all = w->wasmtime_instance_export_get(in->context, &again, "memory", 6, &in->memory) &&
             w->wasmtime_instance_export_get(in->context, &again, "kernel_forward", 14, &in->forward) &&
             w->wasmtime_instance_export_get(in->context, &again, "kernel_backward", 15, &in->backward);
  for (int i = 0; i < 3; i++)
    all = all && w->wasmtime_instance_export_get(in->context, &again, names[i], strlen(names[i]), &others[i]);
  base = (uint32_t)(w->wasmtime_memory_size(in->context, in->memory.of) * WASM_PAGE);
  all = all && !w->wasmtime_memory_grow(in->context, in->memory.of, PAGES, &before);
  memory = w->wasmtime_memory_data(in->context, in->memory.of);
  return CHECK(all, "%s: its exports", k->m->id);
}

static void test_kernel(ambi_pack *pack, const char *id) {
  ambi_pack_kernel *k;
  wasmtime_extern others[3];
  if (!CHECK_OK(ambi_pack_kernel_open(pack, id, &k))) return;
  if (begin(k, others)) {
    information(id, &others[1]);
    if (strcmp(id, "swiglu_f32") == 0) {
      wrong_words();
      wrong_params();
      overlaps();
      right_answer();
      init_and_cleanup(&others[0], &others[2]);
    }
    if (strcmp(id, "softmax_f32") == 0) shorter_init(&others[0]);
    random_calls(id);
  }
  instance_free(host, in);
  in = NULL;
  ambi_pack_kernel_close(k);
}

int main(void) {
  const char *folder = getenv("AMBI_PACK_TEST");
  ambi_pack_options o = {.report = quiet, .insecure_accept_unsigned_packs_for_development = 1};
  ambi_pack *pack = NULL;
  ambi_pack_kernel_info info;
  ambi_status s = folder ? ambi_pack_host_create(&o, &host) : AMBI_UNSUPPORTED;
  if (s == AMBI_UNSUPPORTED) {
    printf("SKIPPED test_pack_abi: %s\n0 passed, 0 failed, 1 skipped\n",
           folder ? ambi_error() : "AMBI_PACK_TEST is not set");
    return 0;
  }
  if (!CHECK(s == AMBI_OK, "no host: %s", ambi_error())) return test_done();
  if (CHECK_OK(ambi_pack_open(host, folder, &pack)))
    for (int32_t i = 0; ambi_pack_get_kernel_info(pack, i, &info) == AMBI_OK; i++) {
      CHECK(info.bytes <= 32 << 10, "%s has %llu bytes", info.id, (unsigned long long)info.bytes);
      test_kernel(pack, info.id);
    }
  ambi_pack_close(pack);
  ambi_pack_host_destroy(host);
  return test_done();
}
