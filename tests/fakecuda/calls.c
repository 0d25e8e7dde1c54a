/* calls.c -- what every call of the stand-in begins with, and the live objects; see fake.h. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "context.h"
#include "rules.h"

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

/* A failure that a test asks for; from 700 on it takes the context along, if the call is one that has one. */
static result provoked(const char *name, needs what) {
  const result code = rules_provoked(name);
  return what == CONTEXT && code >= EMU_ILLEGAL_ADDRESS && code < CAPTURE_UNSUPPORTED ? lose(code) : code;
}

/* ---- the beginning and the end of a call ---- */
result fake_enter(const char *name, needs what) {
  pthread_mutex_lock(&one_at_a_time);
  result failed = provoked(name, what);
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
