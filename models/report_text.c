/* report_text.c -- text and numbers for a page of HTML. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <string.h>
#include <time.h>

#include "report_parts.h"

void put_text(FILE *f, const char *s, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) {
    unsigned char c = (unsigned char)s[i];
    if (c == '&' || c == '<' || c == '>' || c == '"' || c == '\'') {
      fprintf(f, "&#%d;", c);
    } else if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F) {
      fprintf(f, "&#%d;", c == 0x7F ? 0x2421 : 0x2400 + c); /* Unicode's control pictures */
    } else if (c == 0xC2 && i + 1 < bytes && (unsigned char)s[i + 1] < 0xA0) {
      fputs("&#65533;", f); /* U+0080 .. U+009F, which HTML does not allow */
      i++;
    } else {
      fputc(c, f);
    }
  }
}

void put_string(FILE *f, const char *s) { put_text(f, s, strlen(s)); }

const char *text_count(char out[SHORT_TEXT], double v) {
  if (!(fabs(v) <= 0x1p53)) {
    snprintf(out, SHORT_TEXT, isfinite(v) ? "%.3g" : "unknown", v);
    return out;
  }
  char digits[SHORT_TEXT];
  int n = snprintf(digits, sizeof digits, "%.0f", fabs(v)), k = 0;
  if (v <= -0.5) out[k++] = '-';
  for (int i = 0; i < n; i++) {
    if (i && (n - i) % 3 == 0) out[k++] = ',';
    out[k++] = digits[i];
  }
  out[k] = 0;
  return out;
}

const char *text_number(char out[SHORT_TEXT], double v) {
  if (!isfinite(v)) {
    snprintf(out, SHORT_TEXT, "not finite");
    return out;
  }
  snprintf(out, SHORT_TEXT, "%.4g", v);
  char *e = strchr(out, 'e'), *from = e ? e + 1 : NULL; /* 3e-05 is 3e-5, 1e+06 is 1e6 */
  if (!from) return out;
  char *to = from;
  if (*from == '-') to++;
  from++;
  while (*from == '0' && from[1]) from++;
  memmove(to, from, strlen(from) + 1);
  return out;
}

const char *text_duration(char out[SHORT_TEXT], double s) {
  double whole = floor(s + 0.5);
  if (!(s >= 0 && s < 1e12)) {
    snprintf(out, SHORT_TEXT, "unknown");
  } else if (s < 60) {
    snprintf(out, SHORT_TEXT, s < 9.95 ? "%.1f s" : "%.0f s", s);
  } else if (whole < 3600) {
    snprintf(out, SHORT_TEXT, "%.0f min %.0f s", floor(whole / 60), fmod(whole, 60));
  } else if (whole < 86400) {
    snprintf(out, SHORT_TEXT, "%.0f h %.0f min", floor(whole / 3600), floor(fmod(whole, 3600) / 60));
  } else {
    snprintf(out, SHORT_TEXT, "%.0f d %.0f h", floor(whole / 86400), floor(fmod(whole, 86400) / 3600));
  }
  return out;
}

const char *text_time(char out[SHORT_TEXT], double since) {
  out[0] = 0;
  if (!(fabs(since) < 1e11)) return out; /* about 3000 years */
  time_t t = (time_t)since;
  struct tm tm;
  if (gmtime_r(&t, &tm)) strftime(out, SHORT_TEXT, "%Y-%m-%d %H:%M UTC", &tm);
  return out;
}
