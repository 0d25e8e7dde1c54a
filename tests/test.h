/* test.h -- the whole test harness: count what holds, say what does not.
 *
 *   CHECK(n == 3, "expected 3, got %d", n);
 *   CHECK_STATUS(ambi_check(dev, &op), AMBI_INVALID, "rmsnorm", "(8)");    the sentence holds these words
 *   return test_done();                                                    "N passed, N failed" and the exit status */
#ifndef AMBI_TEST_H
#define AMBI_TEST_H
#include <ambi/ambi.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int test_passed, test_failed, test_skipped;

__attribute__((format(printf, 4, 5), unused)) static bool test_check(bool ok, const char *file, int line,
                                                                     const char *format, ...) {
  if (ok) return test_passed++, true;
  test_failed++;
  if (test_failed > 40) return false; /* enough to see what is wrong */
  va_list args;
  va_start(args, format);
  printf("FAILED %s:%d: ", file, line);
  vprintf(format, args);
  printf("\n");
  va_end(args);
  return false;
}
#define CHECK(ok, ...) test_check((ok), __FILE__, __LINE__, __VA_ARGS__)

/* A status and, when it is a failure, every word of `words` (ending in NULL) in its sentence. */
__attribute__((unused)) static bool test_status(ambi_status got, ambi_status want, const char *const *words,
                                                const char *file, int line, const char *call) {
  const char *said = ambi_error();
  if (got != want)
    return test_check(false, file, line, "%s: expected '%s', got '%s': %s", call, ambi_status_name(want),
                      ambi_status_name(got), got == AMBI_OK ? "" : said);
  for (; *words; words++)
    if (!strstr(said, *words))
      return test_check(false, file, line, "%s: the sentence lacks '%s': %s", call, *words, said);
  return test_check(true, file, line, "%s", call);
}
#define CHECK_STATUS(call, want, ...) \
  test_status((call), (want), (const char *const[]){__VA_ARGS__, NULL}, __FILE__, __LINE__, #call)
#define CHECK_OK(call) test_status((call), AMBI_OK, (const char *const[]){NULL}, __FILE__, __LINE__, #call)

__attribute__((unused)) static void test_skip(const char *what, const char *why) {
  printf("SKIPPED %s: %s\n", what, why);
  test_skipped++;
}

/* f with the CPU of this machine as it is, and as if it had no more than each of these instruction sets. */
__attribute__((unused)) static void test_on_isas(int32_t threads, void (*f)(ambi_device *dev, const char *isa)) {
  static const char *const isas[] = {NULL, "avx512", "avx2", "neon", "baseline"};
  for (int i = 0; i < 5; i++) {
    const ambi_device_options o = {.max_isa = isas[i], .threads = threads};
    ambi_device *dev;
    ambi_device_info info;
    if (ambi_device_open("cpu", &o, &dev) != AMBI_OK) continue; /* not of this machine */
    ambi_device_get_info(dev, &info);
    f(dev, info.isa);
    ambi_device_close(dev);
  }
}

/* f with a device by its name */
__attribute__((unused)) static void test_on(const char *name, void (*f)(ambi_device *dev, const char *name)) {
  ambi_device *dev;
  if (!CHECK_OK(ambi_device_open(name, NULL, &dev))) return;
  f(dev, name);
  ambi_device_close(dev);
}

/* The same; of CUDA with texts made for each plan, then with those that serve all. */
__attribute__((unused)) static void test_on_texts(const char *name, void (*f)(ambi_device *dev, const char *name)) {
  static const char *const texts[] = {"special", "general"};
  if (strncmp(name, "cuda", 4) != 0) return test_on(name, f);
  for (int i = 0; i < 2; i++) {
    char what[40];
    ambi_device *dev;
    if (!CHECK_OK(ambi_device_open(name, &(ambi_device_options){.max_isa = texts[i]}, &dev))) return;
    snprintf(what, sizeof what, "%s, %s", name, texts[i]);
    f(dev, what);
    ambi_device_close(dev);
  }
}

static int test_done(void) {
  printf("%d passed, %d failed", test_passed, test_failed);
  if (test_skipped) printf(", %d skipped", test_skipped);
  printf("\n");
  return test_failed != 0 || test_passed == 0;
}

#endif
