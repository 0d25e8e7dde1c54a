/* host.h -- what devices whose memory is the host's share: "cpu" and "ref". */
#ifndef AMBI_HOST_H
#define AMBI_HOST_H
#include "core/core.h"

ambi_status host_check_options(const ambi_device *dev, const char *which, const ambi_device_options *o);
ambi_status host_alloc(ambi_device *dev, size_t bytes, ambi_buf *out);
void host_free(ambi_device *dev, ambi_buf b);
ambi_status host_stream_open(ambi_stream *s, void *native);
void host_stream_close(ambi_stream *s);
ambi_status host_upload(ambi_stream *s, ambi_buf dst, const void *src, size_t bytes);
ambi_status host_download(ambi_stream *s, void *dst, ambi_buf src, size_t bytes);
ambi_status host_copy(ambi_stream *s, ambi_buf dst, ambi_buf src, size_t bytes);
ambi_status host_wait(ambi_stream *s);
#if defined(AMBI_COMPACT) /* whoever calls the module has a clock; the module has none */
#define HOST_EVENTS NULL
#else
extern const event_calls host_events; /* host_events.c */
#define HOST_EVENTS &host_events
#endif

/* Addresses of element 0 of each slot; NULL for those that take no part, but never for an empty tensor. */
void host_addresses(const problem *p, const ambi_buf *slots, char *at[AMBI_SLOTS]);
char *host_address(ambi_buf b); /* never NULL */

#endif
