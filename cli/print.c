/* print.c -- tables and JSON on a FILE. */
#include "print.h"

#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static void *must(void *p) {
  if (p) return p;
  fprintf(stderr, "ambi: out of memory\n");
  exit(1);
}

static char *copy_text(const char *s) {
  size_t n = s ? strlen(s) : 0;
  char *c = must(malloc(n + 1));
  if (n) memcpy(c, s, n);
  c[n] = 0;
  return c;
}

void table_row(table *t, const char *first, ...) {
  if (t->rows == t->room) {
    t->room = t->room ? 2 * t->room : 16;
    t->cell = must(realloc(t->cell, (size_t)t->room * (size_t)t->columns * sizeof *t->cell));
  }
  char **row = t->cell + (size_t)t->rows * (size_t)t->columns;
  va_list ap;
  va_start(ap, first);
  for (int c = 0; c < t->columns; c++) row[c] = copy_text(c ? va_arg(ap, const char *) : first);
  va_end(ap);
  t->rows++;
}

static int width(const char *s) { /* characters, not bytes, of UTF-8 */
  int n = 0;
  for (; *s; s++) n += (*s & 0xC0) != 0x80;
  return n;
}

static void pad(FILE *out, int n, char c) {
  while (n-- > 0) fputc(c, out);
}

void table_print(const table *t, const char *indent) {
  int wide[TABLE_COLUMNS] = {0};
  for (int i = 0; i < t->rows * t->columns; i++) {
    int w = width(t->cell[i]);
    if (w > wide[i % t->columns]) wide[i % t->columns] = w;
  }
  for (int r = 0; r < t->rows; r++) {
    printf("%s", indent);
    for (int c = 0; c < t->columns; c++) {
      const char *s = t->cell[r * t->columns + c];
      printf("%s", s);
      if (c + 1 < t->columns) pad(stdout, wide[c] - width(s) + 2, ' ');
    }
    printf("\n");
    if (r > 0) continue;
    printf("%s", indent);
    for (int c = 0; c < t->columns; c++) {
      pad(stdout, wide[c], '-');
      if (c + 1 < t->columns) printf("  ");
    }
    printf("\n");
  }
}

void table_print_markdown(const table *t, FILE *out) {
  for (int r = 0; r < t->rows; r++) {
    for (int c = 0; c < t->columns; c++) {
      fprintf(out, "| ");
      for (const char *s = t->cell[r * t->columns + c]; *s; s++) {
        if (*s == '|') fputc('\\', out);
        fputc(*s == '\n' ? ' ' : *s, out);
      }
      fputc(' ', out);
    }
    fprintf(out, "|\n");
    if (r > 0) continue;
    for (int c = 0; c < t->columns; c++) fprintf(out, "|---");
    fprintf(out, "|\n");
  }
}

void table_free(table *t) {
  for (int i = 0; i < t->rows * t->columns; i++) free(t->cell[i]);
  free(t->cell);
  *t = (table){.columns = t->columns};
}

static atomic_flag mine = ATOMIC_FLAG_INIT, *said = &mine; /* plans may be made by several threads */

void notify_together(atomic_flag *shared) { said = shared; }
void notify_once(void *context, const char *what) {
  (void)context;
  if (!atomic_flag_test_and_set(said)) fprintf(stderr, "ambi: %s\n", what);
}
