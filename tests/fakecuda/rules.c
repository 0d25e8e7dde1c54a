/* rules.c -- which calls FAKECUDA_FAIL tells to fail; see rules.h. */
#define _GNU_SOURCE
#include "rules.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RULES = 16, OUT_OF_MEMORY = 2 };
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER; /* compilers are called by many threads */
static struct rule {
  char name[64];
  long first, code, times, seen;
} rules[MAX_RULES];
static int rule_count;
static long provoked;

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

static int code_for(const char *function) {
  read_rules();
  for (struct rule *r = rules; r < rules + rule_count; r++) {
    if (strcmp(r->name, function) != 0) continue;
    r->seen++;
    if (r->seen >= r->first && (r->times < 0 || r->seen < r->first + r->times)) return provoked++, (int)r->code;
  }
  return 0;
}

int rules_provoked(const char *function) {
  pthread_mutex_lock(&one_at_a_time);
  const int code = code_for(function);
  pthread_mutex_unlock(&one_at_a_time);
  return code;
}

void rules_keep(void *what) {
  static struct kept {
    struct kept *next;
    void *what;
  } * first;
  struct kept *k = malloc(sizeof *k);
  if (!k) return;
  pthread_mutex_lock(&one_at_a_time);
  *k = (struct kept){first, what};
  first = k;
  pthread_mutex_unlock(&one_at_a_time);
}

long fakecuda_provoked(void) { return provoked; }
