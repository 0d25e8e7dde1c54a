/* json_write.c -- strings and numbers as JSON has them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "utf8.h"

/* One character of `bytes` at p; how many bytes of text it took. */
static size_t write_character(FILE *out, const char *p, size_t bytes) {
  uint32_t c;
  int n = utf8_read(p, p + bytes, &c);
  if (n == 0) return fputs("\\ufffd", out), 1;
  if (*p == '"' || *p == '\\')
    fprintf(out, "\\%c", *p);
  else if (c < 0x20 || c == 0x7f)
    fprintf(out, "\\u%04x", (unsigned)c);
  else
    fwrite(p, 1, (size_t)n, out);
  return (size_t)n;
}

void json_write_string(FILE *out, const char *text, size_t bytes) {
  fputc('"', out);
  for (size_t i = 0; i < bytes;) i += write_character(out, text + i, bytes - i);
  fputc('"', out);
}

void json_write_text(FILE *out, const char *text) {
  if (!text)
    fputs("null", out);
  else
    json_write_string(out, text, strlen(text));
}

void json_write_number(FILE *out, double v) {
  char text[32];
  snprintf(text, sizeof text, "%.10g", v);
  if (isfinite(v) && !isfinite(strtod(text, NULL))) snprintf(text, sizeof text, "%.17g", v); /* rounded past DBL_MAX */
  fputs(isfinite(v) ? text : "null", out);
}
