/* kernel.c -- a kernel of a pack: instances that wait for calls, calls that copy or do not, and its self-tests. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pack/pack.h"

/* ---- instances ---- */
static ambi_status take_instance(ambi_pack_kernel *k, uint32_t ticks, instance **out) {
  pthread_mutex_lock(&k->lock);
  instance *i = k->idle;
  if (i) k->idle = i->next, k->waiting--;
  pthread_mutex_unlock(&k->lock);
  *out = i;
  return i ? AMBI_OK : instance_new(k, ticks, out);
}

static void give_instance(ambi_pack_kernel *k, instance *i) {
  pthread_mutex_lock(&k->lock);
  bool keep = k->waiting < MOST_IDLE;
  if (keep) i->next = k->idle, k->idle = i, k->waiting++;
  pthread_mutex_unlock(&k->lock);
  if (!keep) instance_free(k->pack->host, i);
}

/* An instance with room for the call: one that has grown for others and cannot grow further is replaced. */
static ambi_status take_room(ambi_pack_kernel *k, const ambi_pack_call *call, instance **out) {
  TRY(take_instance(k, ticks_of(k, call), out));
  ambi_status s = instance_place(k, *out, call->bytes);
  if (s == AMBI_OK) return s;
  bool used = (*out)->room > 0;
  instance_free(k->pack->host, *out);
  *out = NULL;
  if (!used) return s;
  TRY(instance_new(k, ticks_of(k, call), out));
  s = instance_place(k, *out, call->bytes);
  if (s != AMBI_OK) instance_free(k->pack->host, *out), *out = NULL;
  return s;
}

/* ---- calls ---- */
static ambi_status check_call(const ambi_pack_kernel *k, const ambi_pack_call *call) {
  if (!k || !call) return fail(AMBI_INVALID, "a kernel of a pack: %s is NULL", k ? "call" : "kernel");
  if (call->pass != AMBI_FORWARD && call->pass != AMBI_BACKWARD)
    return fail(AMBI_INVALID, "%s: pass: expected 0 or 1, got %d", k->m->id, (int)call->pass);
  return AMBI_OK;
}

static void copy(ambi_pack_host *h, const instance *i, const ambi_pack_call *call, int region, bool in) {
  size_t n = call->bytes[region];
  if (n == 0) return;
  void *inside = instance_at(h, i, region);
  memcpy(in ? inside : call->at[region], in ? call->at[region] : inside, n);
}

static ambi_status run_copied(ambi_pack_kernel *k, ambi_pack_call *call) {
  static const int in[] = {AMBI_PACK_A, AMBI_PACK_B, AMBI_PACK_SCRATCH, AMBI_PACK_PARAMS, AMBI_PACK_WEIGHT};
  ambi_pack_host *h = k->pack->host;
  instance *i;
  bool alive;
  for (int r = 0; r < AMBI_PACK_REGIONS; r++)
    if (call->bytes[r] && !call->at[r]) return fail(AMBI_INVALID, "%s: region %d has no buffer", k->m->id, r);
  TRY(take_room(k, call, &i));
  for (size_t r = 0; r < sizeof in / sizeof *in; r++) copy(h, i, call, in[r], true);
  ambi_status s = instance_call(k, i, call, &alive);
  if (s == AMBI_OK) copy(h, i, call, AMBI_PACK_OUT, false), copy(h, i, call, AMBI_PACK_SCRATCH, false);
  if (alive)
    give_instance(k, i);
  else
    instance_free(h, i);
  return s;
}

static void point(ambi_pack_kernel *k, ambi_pack_call *call) {
  const instance *i = call->lease;
  for (int r = 0; r < AMBI_PACK_REGIONS; r++) call->at[r] = i && i->bytes[r] ? instance_at(k->pack->host, i, r) : NULL;
}

static ambi_status run_leased(ambi_pack_kernel *k, ambi_pack_call *call) {
  instance *i = call->lease;
  bool alive;
  if (i->kernel != k) return fail(AMBI_INVALID, "%s: the lease is one of another kernel or pack", k->m->id);
  for (int r = 0; r < AMBI_PACK_REGIONS; r++)
    if (call->bytes[r] > i->bytes[r])
      return fail(AMBI_INVALID, "%s: region %d: %zu bytes, but %zu were leased", k->m->id, r, call->bytes[r],
                  i->bytes[r]);
  ambi_status s = instance_call(k, i, call, &alive);
  if (!alive) {
    instance_free(k->pack->host, i);
    call->lease = NULL;
    point(k, call);
    pack_release(k->pack); /* k may be gone now */
  }
  return s;
}

ambi_status ambi_pack_run(ambi_pack_kernel *k, ambi_pack_call *call) {
  TRY(check_call(k, call));
  call->code = -1;
  TRY(stack_check(k->m->id));
  ambi_pack_host *h = k->pack->host;
  ticker_begin(h);
  ambi_status s = (call->lease ? run_leased : run_copied)(k, call);
  ticker_end(h);
  return s;
}

ambi_status ambi_pack_lease(ambi_pack_kernel *k, ambi_pack_call *call) {
  instance *i;
  TRY(check_call(k, call));
  if (call->lease) return fail(AMBI_INVALID, "%s: the call has a lease already", k->m->id);
  TRY(stack_check(k->m->id));
  ticker_begin(k->pack->host);
  ambi_status s = take_room(k, call, &i);
  ticker_end(k->pack->host);
  TRY(s);
  atomic_fetch_add(&k->pack->users, 1); /* until it is returned */
  i->spent = 0;
  call->lease = i;
  point(k, call);
  return AMBI_OK;
}

void ambi_pack_return(ambi_pack_kernel *k, ambi_pack_call *call) {
  (void)k; /* the lease knows its own */
  if (!call || !call->lease) return;
  instance *i = call->lease;
  ambi_pack *p = i->kernel->pack;
  give_instance(i->kernel, i);
  call->lease = NULL;
  memset(call->at, 0, sizeof call->at);
  pack_release(p);
}

/* ---- self-tests: {"pass", "params", "a", "b", "out", "scratch", "weight", "tolerance"} ---- */
enum { MOST_TEST_VALUES = 65536 };

typedef struct {
  ambi_pack_call call;
  float *want[AMBI_PACK_REGIONS]; /* of out and scratch */
} trial;

static void trial_free(trial *t) {
  for (int r = 0; r < AMBI_PACK_REGIONS; r++) free(t->call.at[r]), free(t->want[r]);
}

static bool take_floats(const json_value *v, trial *t, int region) {
  if (!v) return true;
  if (v->type != JSON_ARRAY || v->length > MOST_TEST_VALUES) return false;
  float *f = calloc(v->length + 1, sizeof *f), *want = calloc(v->length + 1, sizeof *want);
  bool result = region == AMBI_PACK_OUT || region == AMBI_PACK_SCRATCH, good = f && want;
  size_t n = 0;
  for (const json_value *x = v->child; x && good; x = x->next) {
    good = x->type == JSON_NUMBER;
    (result ? want : f)[n++] = (float)x->number;
  }
  t->call.at[region] = f;
  t->call.bytes[region] = n * sizeof(float);
  t->want[region] = want;
  return good;
}

static bool take_hex(const json_value *v, trial *t) {
  const char *text = json_text(v);
  size_t digits = text ? strlen(text) : 1;
  if (digits % 2 || digits > 512 || strspn(text, "0123456789abcdef") != digits) return false;
  uint8_t *bytes = calloc(1, digits / 2 + 1);
  if (!bytes) return false;
  for (size_t i = 0; i < digits / 2; i++) {
    unsigned byte = 0;
    sscanf(text + 2 * i, "%2x", &byte);
    bytes[i] = (uint8_t)byte;
  }
  t->call.at[AMBI_PACK_PARAMS] = bytes;
  t->call.bytes[AMBI_PACK_PARAMS] = digits / 2;
  return true;
}

static bool take_trial(const json_value *o, trial *t) {
  static const struct {
    const char *name;
    int region;
  } arrays[] = {{"a", AMBI_PACK_A},
                {"b", AMBI_PACK_B},
                {"out", AMBI_PACK_OUT},
                {"scratch", AMBI_PACK_SCRATCH},
                {"weight", AMBI_PACK_WEIGHT}};
  const char *pass = json_text(json_get(o, "pass"));
  if (!pass || (strcmp(pass, "forward") != 0 && strcmp(pass, "backward") != 0)) return false;
  t->call.pass = strcmp(pass, "backward") == 0 ? AMBI_BACKWARD : AMBI_FORWARD;
  bool good = take_hex(json_get(o, "params"), t);
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays && good; i++)
    good = take_floats(json_get(o, arrays[i].name), t, arrays[i].region);
  return good;
}

/* The largest difference, in units of the tolerance; NaN counts as different unless wanted. */
static double distance(const trial *t, int region, double tolerance) {
  const float *got = t->call.at[region], *want = t->want[region];
  double most = 0;
  for (size_t i = 0; i < t->call.bytes[region] / sizeof *got; i++) {
    double d = fabs((double)got[i] - (double)want[i]) / tolerance;
    if (!(d <= most)) most = d == d ? d : (double)INFINITY;
  }
  return most;
}

static ambi_status run_trial(ambi_pack_kernel *k, const json_value *o, int number) {
  trial t = {.call.ticks = 0};
  const json_value *v = json_get(o, "tolerance");
  double tolerance = v && v->type == JSON_NUMBER ? v->number : 0;
  bool good = o->type == JSON_OBJECT && tolerance > 0;
  ambi_status s = AMBI_OK;
  if (!good || !take_trial(o, &t)) s = fail(AMBI_DENIED, "manifest: %s: self-test %d cannot be read", k->m->id, number);
  if (s == AMBI_OK) s = run_copied(k, &t.call);
  for (int r = AMBI_PACK_OUT; r <= AMBI_PACK_SCRATCH && s == AMBI_OK; r++)
    if (t.call.bytes[r] && distance(&t, r, tolerance) > 1)
      s = fail(AMBI_DENIED, "refused by self-test: %s: test %d gives other results than the manifest says", k->m->id,
               number);
  trial_free(&t);
  return s;
}

static ambi_status self_test(ambi_pack_kernel *k) {
  int number = 0;
  instance *i;
  for (const json_value *t = k->m->self_test ? k->m->self_test->child : NULL; t; t = t->next)
    TRY(run_trial(k, t, number++));
  if (number) return AMBI_OK;
  TRY(take_instance(k, k->m->ticks, &i)); /* at least it begins */
  i->spent = 0;                           /* and no call waited for it */
  give_instance(k, i);
  return AMBI_OK;
}

ambi_status kernel_load(ambi_pack_kernel *k) {
  ambi_pack *p = k->pack;
  ptrdiff_t index = k - p->kernels;
  pthread_mutex_lock(&k->lock);
  bool ready = k->tested;
  pthread_mutex_unlock(&k->lock);
  if (ready) return AMBI_OK;
  if (!p->host->engine) return fail(AMBI_UNSUPPORTED, "%s: this host verifies only: it runs no kernels", k->m->id);
  TRY(stack_check(k->m->id));
  compiled *code;
  TRY(code_get(p->host, k->m, p->bytes[index], p->sizes[index], &code));
  pthread_mutex_lock(&k->lock);
  bool first = !k->code;
  if (first) k->code = code;
  pthread_mutex_unlock(&k->lock);
  if (!first) code_release(p->host, code);
  ticker_begin(p->host);
  ambi_status s = self_test(k);
  ticker_end(p->host);
  pthread_mutex_lock(&k->lock);
  k->tested = k->tested || s == AMBI_OK;
  pthread_mutex_unlock(&k->lock);
  return s;
}

void kernel_unload(ambi_pack_kernel *k) {
  while (k->idle) {
    instance *next = k->idle->next;
    instance_free(k->pack->host, k->idle);
    k->idle = next;
  }
  if (k->code) code_release(k->pack->host, k->code);
  k->code = NULL;
}
