/* format.c -- snprintf and vsnprintf for the sentences of the library, instead of libc's: a tenth of its size, and with
 * no need of files, so that the module imports nothing. It knows what those sentences use: %s %.Ns %.*s %d %u %x %lld
 * %llu %zu %c %g and %%. test_ambi.mjs looks for others in the sources. */
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  char *at;
  size_t left, length; /* room, the end's NUL included; characters so far, written or not */
} text;

static void put(text *t, char c) {
  if (t->left > 1) *t->at++ = c, t->left--;
  t->length++;
}

static void put_string(text *t, const char *s, int most) {
  for (int i = 0; (most < 0 || i < most) && s[i]; i++) put(t, s[i]);
}

static void put_integer(text *t, uint64_t v, unsigned base, int negative) {
  char digits[24];
  int n = 0;
  if (negative) put(t, '-'), v = 0 - v;
  do digits[n++] = "0123456789abcdef"[v % base];
  while (v /= base);
  while (n > 0) put(t, digits[--n]);
}

/* |v| as d.ddddd 10^e: six digits, and e. */
static int64_t six_digits(double v, int *e) {
  *e = (int)floor(log10(v));
  for (;;) { /* the logarithm may be off by one at a power of ten */
    int shift = 5 - *e;
    double scaled = shift > 300 ? v * 1e300 * pow(10, shift - 300) : v * pow(10, shift);
    int64_t n = (int64_t)(scaled + 0.5);
    if (n >= 1000000)
      ++*e;
    else if (n < 100000)
      --*e;
    else
      return n;
  }
}

/* %g: six digits without zeros at their end, with an exponent below 1e-4 and from 1e6 on. */
static void put_number(text *t, double v) {
  if (v != v) return put_string(t, "nan", -1);
  if (signbit(v)) put(t, '-'), v = -v;
  if (isinf(v)) return put_string(t, "inf", -1);
  if (v == 0) return put(t, '0');
  int e, last = 5;
  int64_t n = six_digits(v, &e);
  char digit[6];
  for (int i = 5; i >= 0; i--, n /= 10) digit[i] = (char)('0' + n % 10);
  while (last > 0 && digit[last] == '0') last--;
  const int exponent = e < -4 || e >= 6, point = exponent ? 0 : e; /* digits after [point] are a fraction */
  for (int i = point; i < 0; i++) put_string(t, i == point ? "0." : "0", -1);
  for (int i = 0; i <= last || i <= point; i++) {
    if (point >= 0 && i == point + 1) put(t, '.');
    put(t, i <= last ? digit[i] : '0');
  }
  if (!exponent) return;
  put_string(t, e < 0 ? "e-" : "e+", -1);
  if (e > -10 && e < 10) put(t, '0');
  put_integer(t, (uint64_t)(e < 0 ? -e : e), 10, 0);
}

/* One conversion, from behind its '%' on; what follows it. */
static const char *convert(text *t, const char *f, va_list *args) {
  int most = -1, size = 0; /* size: 1 for long and size_t, 2 for long long */
  if (*f == '.') {
    f++;
    if (*f == '*') most = va_arg(*args, int), f++;
    for (; *f >= '0' && *f <= '9'; f++) most = 10 * (most < 0 ? 0 : most) + (*f - '0');
  }
  for (; *f == 'l' || *f == 'z'; f++) size++;
  int64_t v = 0;
  if (strchr("dux", *f)) {
    v = size == 2 ? va_arg(*args, long long) : size == 1 ? va_arg(*args, long) : va_arg(*args, int);
    if (*f != 'd' && size < 2) v = (uint32_t)v;
  }
  switch (*f) {
    case 'd':
      put_integer(t, (uint64_t)v, 10, v < 0);
      break;
    case 'u':
      put_integer(t, (uint64_t)v, 10, 0);
      break;
    case 'x':
      put_integer(t, (uint64_t)v, 16, 0);
      break;
    case 's':
      put_string(t, va_arg(*args, const char *), most);
      break;
    case 'c':
      put(t, (char)va_arg(*args, int));
      break;
    case 'g':
      put_number(t, va_arg(*args, double));
      break;
    default:
      put(t, *f);
      break;
  }
  return *f ? f + 1 : f;
}

int vsnprintf(char *out, size_t room, const char *format, va_list args) {
  text t = {out, room, 0};
  va_list mine;
  va_copy(mine, args);
  for (const char *f = format; *f;) {
    if (*f == '%')
      f = convert(&t, f + 1, &mine);
    else
      put(&t, *f++);
  }
  va_end(mine);
  if (room) *t.at = 0;
  return (int)t.length;
}

int snprintf(char *out, size_t room, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(out, room, format, args);
  va_end(args);
  return n;
}
