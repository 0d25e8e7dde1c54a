/* slots.h -- one run of an op over arrays of the host, on any device: what it uses goes up, and comes back. */
#ifndef AMBI_TEST_SLOTS_H
#define AMBI_TEST_SLOTS_H
#include "test.h"

typedef struct {
  void *data; /* NULL: none */
  size_t bytes;
} host_slot;

/* Slots that share an array share a buffer. What is only written goes up too: an element that is left out keeps what
 * was put there. */
static bool slots_upload(ambi_device *dev, ambi_stream *stream, uint32_t used, const host_slot *host, ambi_buf *bufs) {
  for (int s = 0; s < AMBI_SLOTS; s++) {
    int first = 0;
    if (!(used & AMBI_BIT(s)) || !host[s].data) continue;
    while (!(used & AMBI_BIT(first)) || host[first].data != host[s].data) first++;
    if (first < s)
      bufs[s] = bufs[first];
    else if (!CHECK_OK(ambi_alloc(dev, host[s].bytes, &bufs[s])) ||
             !CHECK_OK(ambi_upload(stream, bufs[s], host[s].data, host[s].bytes)))
      return false;
  }
  return true;
}

static void slots_free(ambi_device *dev, ambi_buf *bufs) {
  for (int s = 0; s < AMBI_SLOTS; s++) {
    ambi_free(dev, bufs[s]);
    for (int other = AMBI_SLOTS - 1; other >= s; other--)
      if (bufs[other].data == bufs[s].data) bufs[other] = (ambi_buf){0};
  }
}

static bool slots_run(ambi_device *dev, const ambi_op *op, const host_slot *host) {
  ambi_plan *plan = NULL;
  ambi_plan_info info;
  ambi_stream *stream = NULL;
  ambi_buf work = {0}, bufs[AMBI_SLOTS] = {0};
  bool ran = false;
  if (CHECK_OK(ambi_plan_create(dev, op, &plan)) && CHECK_OK(ambi_plan_get_info(plan, &info)) &&
      CHECK_OK(ambi_stream_create(dev, NULL, &stream)) &&
      (!info.workspace || CHECK_OK(ambi_alloc(dev, info.workspace, &work))) &&
      slots_upload(dev, stream, info.reads | info.writes, host, bufs) &&
      CHECK_OK(ambi_run(plan, stream, bufs, AMBI_SLOTS, work))) {
    for (int s = 0; s < AMBI_SLOTS; s++)
      if (bufs[s].data) CHECK_OK(ambi_download(stream, host[s].data, bufs[s], host[s].bytes));
    ran = CHECK_OK(ambi_stream_wait(stream));
  }
  slots_free(dev, bufs);
  ambi_free(dev, work);
  ambi_stream_destroy(stream);
  ambi_plan_destroy(plan);
  return ran;
}

#endif
