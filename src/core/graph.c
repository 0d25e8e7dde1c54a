/* graph.c -- recordings: checked here, made and replayed by the backend. */
#include <stdlib.h>

#include "core/core.h"

ambi_status ambi_record(ambi_stream *s) {
  if (!s) return fail(AMBI_INVALID, "ambi_record: stream is NULL");
  if (!s->dev->be->record) return fail(AMBI_UNSUPPORTED, "ambi_record: %s records no graphs", s->dev->name);
  return s->dev->be->record(s);
}

ambi_status ambi_recorded(ambi_stream *s, ambi_graph **out) {
  if (out) *out = NULL;
  if (!s) return fail(AMBI_INVALID, "ambi_recorded: stream is NULL");
  if (!s->dev->be->record) return fail(AMBI_UNSUPPORTED, "ambi_recorded: %s records no graphs", s->dev->name);
  if (!out) return s->dev->be->recorded(s, NULL);
  ambi_graph *g = calloc(1, sizeof *g);
  if (!g) return fail(AMBI_NO_MEMORY, "ambi_recorded: no memory");
  g->dev = s->dev;
  ambi_status status = s->dev->be->recorded(s, g);
  if (status == AMBI_OK)
    *out = g;
  else
    free(g);
  return status;
}

ambi_status ambi_replay(const ambi_graph *g, ambi_stream *s) {
  if (!g || !s) return fail(AMBI_INVALID, "ambi_replay: %s is NULL", g ? "stream" : "graph");
  if (g->dev != s->dev) return fail(AMBI_INVALID, "ambi_replay: the stream belongs to another device than the graph");
  return g->dev->be->replay(g, s);
}

void ambi_graph_destroy(ambi_graph *g) {
  if (!g) return;
  g->dev->be->forget(g);
  free(g);
}
