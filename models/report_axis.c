/* report_axis.c -- an axis ends where its values end and has its ticks at 1, 2 or 5 times a power of ten.
 *
 * Logs hold anything, 1e308 and 1e-320 too: values are held inside +-LIMIT, where differences and sums are finite. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "report_parts.h"

#define LIMIT 1e300

static double held(double v, double lo, double hi) { return v < lo ? lo : v > hi ? hi : v; }

/* The smallest of 1, 2, 5, 10 .. times a power of ten that is not below v > 0. */
static double round_up(double v) {
  static const double steps[] = {1, 2, 5, 10};
  double power = pow(10, floor(log10(v)));
  int i = 0;
  while (i < 3 && steps[i] * power < v * (1 - 1e-9)) i++;
  return steps[i] * power;
}

axis axis_linear(double lo, double hi, int want) {
  lo = held(lo, -LIMIT, LIMIT);
  hi = held(hi, lo, LIMIT);
  double size = fmax(fabs(lo), fabs(hi));
  if (size < DBL_MIN * 1e9) size = 1;
  if (hi - lo < size * 1e-6) { /* as good as one value: it lies in the middle, a zero at the bottom */
    if (lo != 0) lo -= size * 0.05;
    hi += size * 0.05;
  }
  axis a = {.lo = lo, .hi = hi};
  double step = round_up((hi - lo) / want), first = ceil(lo / step - 1e-9);
  for (int i = 0; i < AXIS_TICKS && (first + i) * step <= hi + step * 1e-6; i++) a.tick[a.ticks++] = (first + i) * step;
  return a;
}

axis axis_log(double lo, double hi) {
  lo = held(lo, 1 / LIMIT, LIMIT);
  hi = held(hi, lo, LIMIT);
  axis a = {.log = 1, .hi = round_up(hi), .lo = 1 / round_up(1 / lo)};
  if (a.hi < 2 * a.lo) a.hi = 2 * a.lo;
  int first = (int)floor(log10(a.lo) + 1e-9), last = (int)ceil(log10(a.hi) - 1e-9);
  int every = (last - first + 5) / 6, fine = a.hi / a.lo < 300; /* 2 and 5 too */
  static const double within[] = {1, 2, 5};
  for (int e = first; e <= last; e += every) {
    for (int i = 0; i < (fine ? 3 : 1); i++) {
      double v = within[i] * pow(10, e);
      if (v >= a.lo * (1 - 1e-9) && v <= a.hi * (1 + 1e-9) && a.ticks < AXIS_TICKS) a.tick[a.ticks++] = v;
    }
  }
  return a;
}

double axis_at(const axis *a, double v) {
  v = held(v, a->lo, a->hi);
  double at = a->log ? (log(v) - log(a->lo)) / (log(a->hi) - log(a->lo)) : (v - a->lo) / (a->hi - a->lo);
  return held(at, 0, 1);
}

const char *axis_label(const axis *a, double v, char out[SHORT_TEXT]) {
  double size = fmax(fabs(a->lo), fabs(a->hi)), step = a->ticks > 1 ? a->tick[1] - a->tick[0] : size;
  static const struct {
    double from, unit;
    const char *name;
  } units[] = {{1e9, 1e9, "G"}, {1e6, 1e6, "M"}, {1e4, 1e3, "k"}, {0, 1, ""}};
  int u = 0;
  while (u < 3 && size < units[u].from) u++;
  int decimals = (int)ceil(-log10(step / units[u].unit) - 1e-9);
  if (a->log || size >= 1e12 || decimals > 6) return text_number(out, v);
  if (v == 0) {
    snprintf(out, SHORT_TEXT, "0");
  } else {
    snprintf(out, SHORT_TEXT, "%.*f%s", decimals > 0 ? decimals : 0, v / units[u].unit, units[u].name);
  }
  return out;
}
