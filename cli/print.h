/* print.h -- output that several commands share: aligned tables, and a word before long work. */
#ifndef CLI_PRINT_H
#define CLI_PRINT_H
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

enum { TABLE_COLUMNS = 12 };

/* The end of a word that is counted. */
static inline const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

/* Files of folders that are no text, if there are any: behind the number of those that are. */
static inline void print_left_out(int64_t binary) {
  if (binary) printf(", %lld binary left out", (long long)binary);
}

/* For printf: a NaN without the sign that some machines give it. */
static inline double shown(double v) { return isnan(v) ? fabs(v) : v; }

/* table t = {.columns = 2}; table_row(&t, "op", "doc"); .. table_print(&t, "  "); table_free(&t); */
typedef struct {
  int columns, rows, room;
  char **cell;
} table;

/* One `const char *` per column, copied; NULL prints as nothing. Out of memory ends the program with status 1. */
void table_row(table *t, const char *first, ...);
/* Columns as wide as their longest cell; a line of dashes under the first row. */
void table_print(const table *t, const char *indent);
/* The same as Markdown, `|` escaped. */
void table_print_markdown(const table *t, FILE *out);
void table_free(table *t);

/* ambi_device_options.notify: the first word of a process goes to stderr; once is enough, as it is the first
 * compilation that surprises. */
void notify_once(void *context, const char *what);
void notify_together(atomic_flag *said); /* once for all processes that share this */

#endif
