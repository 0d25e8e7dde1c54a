/* calls.c -- what every call of the stand-in begins with, and the live objects; see fake.h. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "context.h"

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static object *objects;
static long live[KINDS];
result lost;

bool flag_of(const char *variable) { return number_of(variable, 0) != 0; }
long number_of(const char *variable, long otherwise) {
  const char *value = getenv(variable);
  return value && *value ? strtol(value, NULL, 10) : otherwise;
}

result lose(result code) {
  if (!lost) lost = code;
  return lost;
}

/* ---- provoked failures ---- */
enum { MAX_RULES = 16 };
static struct rule {
  char name[64];
  long first, code, times, seen;
} rules[MAX_RULES];
static int rule_count;

static void read_rules(void) {
  static char known[1024];
  const char *value = getenv("FAKECUDA_FAIL");
  if (!value) value = "";
  if (strncmp(known, value, sizeof known - 1) == 0) return;
  snprintf(known, sizeof known, "%s", value);
  rule_count = 0;
  char copy[sizeof known], *rest = copy, *one;
  memcpy(copy, known, sizeof copy);
  while ((one = strsep(&rest, ",")) != NULL && rule_count < MAX_RULES) {
    struct rule r = {.first = 1, .code = OUT_OF_MEMORY, .times = -1};
    if (sscanf(one, "%63[^:]:%ld:%ld:%ld", r.name, &r.first, &r.code, &r.times) >= 1) rules[rule_count++] = r;
  }
}

static result provoked(const char *name) {
  read_rules();
  for (struct rule *r = rules; r < rules + rule_count; r++) {
    if (strcmp(r->name, name) != 0) continue;
    r->seen++;
    if (r->seen >= r->first && (r->times < 0 || r->seen < r->first + r->times))
      return r->code >= EMU_ILLEGAL_ADDRESS && r->code < CAPTURE_UNSUPPORTED ? lose((result)r->code) : (result)r->code;
  }
  return OK;
}

/* ---- the beginning and the end of a call ---- */
result fake_enter(const char *name, needs what) {
  pthread_mutex_lock(&one_at_a_time);
  result failed = provoked(name);
  if (!failed && what != ANYTIME && initialized_by != getpid()) failed = NOT_INITIALIZED;
  if (!failed && what == CONTEXT) failed = current_context() ? lost : INVALID_CONTEXT;
  return failed;
}
void fake_leave(const result *status) {
  (void)status;
  pthread_mutex_unlock(&one_at_a_time);
}

/* ---- objects ---- */
void *object_new(kind k, size_t bytes) {
  object *o = calloc(1, bytes);
  if (!o) return NULL;
  *o = (object){k, objects, current_context()};
  objects = o;
  live[k]++;
  return o;
}

void *object_of(kind k, const void *handle) {
  for (object *o = objects; o; o = o->next)
    if (o == handle) return o->kind == k ? o : NULL;
  return NULL;
}

void object_end(void *handle) {
  for (object **o = &objects; *o; o = &(*o)->next)
    if (*o == handle) {
      object *dead = *o;
      *o = dead->next;
      live[dead->kind]--;
      free(dead);
      return;
    }
}

object *object_first(void) { return objects; }

EXPORT long fakecuda_live(const char *name);
long fakecuda_live(const char *name) {
  static const char *const names[KINDS] = {"memory", "stream", "event", "module", "function", "graph", "exec"};
  long n = 0;
  for (int k = 0; k < KINDS; k++)
    if (name ? strcmp(name, names[k]) == 0 : k != FUNCTION) n += live[k];
  return n;
}
