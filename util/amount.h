/* amount.h -- bytes as a person reads them. */
#ifndef UTIL_AMOUNT_H
#define UTIL_AMOUNT_H
#include <stdio.h>

typedef struct {
  char text[32];
} amount;

/* amount_bytes(6.9e12).text is "6.28 TiB". */
static inline amount amount_bytes(double bytes) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  amount a;
  int unit = 0;
  for (; bytes >= 1024 && unit < 6; unit++) bytes /= 1024;
  snprintf(a.text, sizeof a.text, bytes < 10 && unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
  return a;
}

#endif
