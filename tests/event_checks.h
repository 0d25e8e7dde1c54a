/* event_checks.h -- what holds of events on any device. */
#ifndef EVENT_CHECKS_H
#define EVENT_CHECKS_H
#include <time.h>

#include "test.h"

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void sleep_ms(long ms) { nanosleep(&(struct timespec){0, ms * 1000000}, NULL); }

/* Before it is recorded an event can be recorded, and nothing else. */
static void check_unrecorded(ambi_event *e, ambi_event *recorded, ambi_stream *s) {
  int32_t passed = 7;
  double ms = 7;
  CHECK_STATUS(ambi_event_wait(e), AMBI_INVALID, "ambi_event_wait", "never recorded");
  CHECK_STATUS(ambi_event_query(e, &passed), AMBI_INVALID, "ambi_event_query", "never recorded");
  CHECK_STATUS(ambi_event_elapsed(e, recorded, &ms), AMBI_INVALID, "ambi_event_elapsed", "never recorded");
  CHECK_STATUS(ambi_event_elapsed(recorded, e, &ms), AMBI_INVALID, "ambi_event_elapsed", "never recorded");
  CHECK_STATUS(ambi_stream_wait_event(s, e), AMBI_INVALID, "ambi_stream_wait_event", "never recorded");
  CHECK(passed == 0 && ms == 0, "what a refused call was to write is 0");
}

static void check_nothing(ambi_device *dev, ambi_event *e, ambi_stream *s) {
  ambi_event *none = e;
  int32_t passed;
  double ms;
  CHECK_STATUS(ambi_event_create(NULL, &none), AMBI_INVALID, "dev", "NULL");
  CHECK(none == NULL, "an event that was not made is NULL");
  CHECK_STATUS(ambi_event_create(dev, NULL), AMBI_INVALID, "out", "NULL");
  CHECK_STATUS(ambi_event_record(NULL, s), AMBI_INVALID, "ambi_event_record", "event", "NULL");
  CHECK_STATUS(ambi_stream_wait_event(s, NULL), AMBI_INVALID, "ambi_stream_wait_event", "event", "NULL");
  CHECK_STATUS(ambi_event_wait(NULL), AMBI_INVALID, "ambi_event_wait", "NULL");
  CHECK_STATUS(ambi_event_query(NULL, &passed), AMBI_INVALID, "ambi_event_query", "NULL");
  CHECK_STATUS(ambi_event_query(e, NULL), AMBI_INVALID, "passed", "NULL");
  CHECK_STATUS(ambi_event_elapsed(NULL, e, &ms), AMBI_INVALID, "ambi_event_elapsed", "NULL");
  CHECK_STATUS(ambi_event_elapsed(e, NULL, &ms), AMBI_INVALID, "ambi_event_elapsed", "NULL");
  CHECK_STATUS(ambi_event_elapsed(e, e, NULL), AMBI_INVALID, "ms", "NULL");
  ambi_event_destroy(NULL);
}

/* Times come in the order of the calls and agree with the clock on the wall; the last recording counts. An event of
 * CUDA tells time to half a microsecond, its clock drifts by less than 1 in 1000. */
static void check_times(ambi_event *a, ambi_event *b, ambi_stream *s) {
  double ms = -1, back = 1, before = now_ms();
  int32_t passed = 0;
  CHECK_OK(ambi_event_record(a, s));
  CHECK_OK(ambi_event_wait(a));
  double inside = now_ms();
  sleep_ms(3);
  double least = now_ms() - inside;
  CHECK_OK(ambi_event_record(b, s));
  CHECK_OK(ambi_stream_wait_event(s, b));
  CHECK_OK(ambi_event_wait(b));
  double most = now_ms() - before;
  CHECK(ambi_event_query(b, &passed) == AMBI_OK && passed == 1, "after a wait it has passed");
  CHECK_OK(ambi_event_elapsed(a, b, &ms));
  CHECK(ms >= least * 0.999 - 1e-3 && ms <= most * 1.001 + 1e-3, "%g ms, not within %g and %g", ms, least, most);
  CHECK_OK(ambi_event_elapsed(b, a, &back));
  CHECK(back + ms < 1e-3 && back + ms > -1e-3, "backwards %g ms, forwards %g", back, ms);
  CHECK_OK(ambi_event_record(a, s));
  CHECK_OK(ambi_event_elapsed(b, a, &back));
  CHECK(back >= 0, "recorded again, it has moved: %g ms", back);
  CHECK_OK(ambi_event_elapsed(a, a, &back));
  CHECK(back == 0, "an event and itself: %g ms", back);
}

/* `other`: another device. */
static void check_events(ambi_device *dev, ambi_device *other) {
  ambi_stream *s = NULL, *strange = NULL;
  ambi_event *a = NULL, *b = NULL, *foreign = NULL;
  double ms;
  if (CHECK_OK(ambi_stream_create(dev, NULL, &s)) && CHECK_OK(ambi_stream_create(other, NULL, &strange)) &&
      CHECK_OK(ambi_event_create(dev, &a)) && CHECK_OK(ambi_event_create(dev, &b)) &&
      CHECK_OK(ambi_event_create(other, &foreign)) && CHECK_OK(ambi_event_record(b, s)) &&
      CHECK_OK(ambi_event_record(foreign, strange))) {
    check_unrecorded(a, b, s);
    check_nothing(dev, b, s);
    CHECK_STATUS(ambi_event_record(b, strange), AMBI_INVALID, "another device", "ambi_event_record");
    CHECK_STATUS(ambi_stream_wait_event(strange, b), AMBI_INVALID, "another device", "ambi_stream_wait_event");
    CHECK_STATUS(ambi_event_elapsed(b, foreign, &ms), AMBI_INVALID, "two devices");
    check_times(a, b, s);
    check_times(a, b, NULL); /* the device's own stream */
  }
  ambi_event_destroy(a), ambi_event_destroy(b), ambi_event_destroy(foreign);
  ambi_stream_destroy(s), ambi_stream_destroy(strange);
}

#endif
