/* progress.c -- see progress.h. */
#define _POSIX_C_SOURCE 200809L
#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "print.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void progress_begin(progress *p, int64_t steps, int quiet) {
  *p = (progress){.terminal = isatty(1), .quiet = quiet, .steps = steps};
}

static void clear_line(progress *p) {
  if (p->open) printf("\r\033[K");
  p->open = 0;
}

void progress_end(progress *p) {
  if (p->open) printf("\n");
  p->open = 0;
  fflush(stdout);
}

static void duration(char *out, size_t n, double seconds) {
  const long s = (long)(seconds + 0.5);
  if (s >= 3600)
    snprintf(out, n, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
  else
    snprintf(out, n, "%ld:%02ld", s / 60, s % 60);
}

static void show_step(void *context, int64_t step, double loss, double norm, double lr, double tokens_per_s,
                      double left) {
  progress *p = context;
  char time_left[32];
  const double t = now(), often = p->terminal ? 0.1 : 5;
  if (p->quiet || (step < p->steps && step > 1 && t - p->shown < often)) return;
  p->shown = t;
  clear_line(p);
  duration(time_left, sizeof time_left, left);
  printf("step %lld/%lld  loss %.4f", (long long)step, (long long)p->steps, shown(loss));
  if (p->val_bits > 0) printf("  val %.3f bits/byte", p->val_bits);
  printf("  norm %.3g  lr %.2e  %.0f tokens/s  %s left", shown(norm), lr, tokens_per_s, time_left);
  p->open = p->terminal;
  if (!p->terminal) printf("\n");
  fflush(stdout);
}

static void show_eval(void *context, int64_t step, double loss, double bits_per_byte) {
  progress *p = context;
  p->val_bits = bits_per_byte;
  if (p->quiet) return;
  clear_line(p);
  printf("step %lld  validation loss %.4f, %.3f bits per byte\n", (long long)step, shown(loss), shown(bits_per_byte));
  fflush(stdout);
}

/* Control characters of a sample must not reach the terminal. */
static void show_sample(void *context, int64_t step, const char *text, size_t bytes) {
  progress *p = context;
  if (p->quiet) return;
  clear_line(p);
  printf("---- step %lld writes:\n", (long long)step);
  for (size_t i = 0; i < bytes; i++) {
    unsigned char c = (unsigned char)text[i];
    putchar(c >= 0x20 || c == '\n' || c == '\t' ? c : '?');
  }
  printf("\n----\n");
  fflush(stdout);
}

static void show_text(void *context, const char *text) {
  progress *p = context;
  if (p->quiet) return;
  clear_line(p);
  printf("%s\n", text);
  fflush(stdout);
}

void progress_profile(void *context, const profile_row *rows, int64_t count) {
  progress *p = context;
  double all = 0;
  clear_line(p);
  for (int64_t i = 0; i < count; i++) all += rows[i].seconds;
  printf("one step, op by op: %.3f ms\n", 1e3 * all);
  for (int64_t i = 0; i < count; i++)
    printf("  %-32s %4lld x %9.4f ms = %9.3f ms %5.1f%%\n", rows[i].name, (long long)rows[i].runs,
           1e3 * rows[i].seconds / (double)rows[i].runs, 1e3 * rows[i].seconds, 100 * rows[i].seconds / all);
}

training_hooks progress_hooks(progress *p, volatile int *stop) {
  return (training_hooks){p, show_step, show_eval, show_sample, NULL, show_text, stop};
}
