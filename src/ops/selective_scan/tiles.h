/* tiles.h -- two axes of a tensor as a tile of reals, whatever its dtype and strides. Included by cpu.c only.
 *
 * A tile has lanes (channels, or states) and rows (steps, or states). Element (row, lane) of memory goes to
 * out[lane / VL * to.vector + row * to.row + lane % VL]; lanes are padded with zeros to whole vectors. Strips run along
 * the denser of the two axes: along lanes they are copied, along rows VL of them are transposed at a time.          */
#include "backends/cpu/gemm/transpose.h"
#include "backends/cpu/sums.h"
#include "ops/selective_scan/op.h"

typedef struct {
  int64_t vector, row;
} tile_layout;

/* One tile of a slot: where element (0, 0) is, and the strides to the next lane and the next row. */
typedef struct {
  const cpu_call *c;
  int slot;
  int64_t offset, lane, row, lanes, rows;
} tile_view;

static int64_t magnitude(int64_t v) { return v < 0 ? -v : v; }

static bool along_lanes(const tile_view *v) { return v->rows == 1 || magnitude(v->lane) <= magnitude(v->row); }

static strip lane_strip(const tile_view *v, int64_t row) {
  return strip_of(v->c, v->slot, v->offset + row * v->row, v->lane);
}
static strip row_strip(const tile_view *v, int64_t lane) {
  return strip_of(v->c, v->slot, v->offset + lane * v->lane, v->row);
}

/* ---- load --------------------------------------------------------------------------------------------- */
static void load_rows(const tile_view *v, real *out, tile_layout to) {
  TILE_OF_REALS buffer[WIDTH];
  for (int64_t row = 0; row < v->rows; row++) {
    strip s = lane_strip(v, row);
    const real *from = strip_in(&s, 0, v->lanes, buffer);
    real *at = out + row * to.row;
    for (int64_t i = 0; i < v->lanes; i += VL, at += to.vector) v_store(at, v_get(from + i, v->lanes - i));
  }
}

/* One vector of lanes: VL strips along rows, transposed */
static void load_columns(const tile_view *v, int64_t lane, real *out, tile_layout to) {
  TILE_OF_REALS buffer[LANES][MOST_ROWS];
  const real *from[LANES];
  int64_t whole = v->rows / VL * VL;
  for (int64_t i = 0; i < VL; i++) {
    from[i] = buffer[i];
    if (lane + i >= v->lanes || whole < v->rows) memset(buffer[i], 0, sizeof buffer[i]);
    if (lane + i >= v->lanes) continue;
    strip s = row_strip(v, lane + i);
    if (whole == v->rows)
      from[i] = strip_in(&s, 0, v->rows, buffer[i]);
    else
      read_reals(s.dtype, s.at, s.stride, v->rows, buffer[i]);
  }
  for (int64_t row = 0; row < v->rows; row += VL) {
    vr t[LANES];
    _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) t[i] = v_load(from[i] + row);
    v_transpose(t);
    for (int64_t i = 0; i < min64(VL, v->rows - row); i++) v_store(out + (row + i) * to.row, t[i]);
  }
}

static void clear_tile(const tile_view *v, real *out, tile_layout to) {
  for (int64_t lane = 0; lane < v->lanes; lane += VL, out += to.vector)
    for (int64_t row = 0; row < v->rows; row++) v_store(out + row * to.row, (vr){0});
}

/* A slot that takes no part reads as zero. */
static void load_tile(const tile_view *v, real *out, tile_layout to) {
  if (!reads_slot(v->c->p, v->slot))
    clear_tile(v, out, to);
  else if (along_lanes(v))
    load_rows(v, out, to);
  else
    for (int64_t lane = 0; lane < v->lanes; lane += VL) load_columns(v, lane, out + lane / VL * to.vector, to);
}

/* ---- store -------------------------------------------------------------------------------------------- */
static void store_rows(const tile_view *v, const real *in, tile_layout from) {
  TILE_OF_REALS buffer[WIDTH];
  for (int64_t row = 0; row < v->rows; row++) {
    strip s = lane_strip(v, row);
    const real *at = in + row * from.row;
    for (int64_t i = 0; i < v->lanes; i += VL, at += from.vector) v_store(buffer + i, v_load(at));
    strip_put(&s, 0, v->lanes, buffer);
  }
}

static void store_columns(const tile_view *v, int64_t lane, const real *in, tile_layout from) {
  TILE_OF_REALS buffer[LANES][MOST_ROWS];
  for (int64_t row = 0; row < v->rows; row += VL) {
    vr t[LANES];
    for (int64_t i = 0; i < VL; i++) t[i] = row + i < v->rows ? v_load(in + (row + i) * from.row) : (vr){0};
    v_transpose(t);
    _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) v_store(buffer[i] + row, t[i]);
  }
  for (int64_t i = 0; i < min64(VL, v->lanes - lane); i++) {
    strip s = row_strip(v, lane + i);
    strip_put(&s, 0, v->rows, buffer[i]);
  }
}

/* A slot that is not wanted is left alone. */
static void store_tile(const tile_view *v, const real *in, tile_layout from) {
  if (!writes_slot(v->c->p, v->slot) || v->rows == 0) return;
  if (along_lanes(v))
    store_rows(v, in, from);
  else
    for (int64_t lane = 0; lane < v->lanes; lane += VL) store_columns(v, lane, in + lane / VL * from.vector, from);
}

/* ---- ask for memory ahead of time, strip by strip, while something else is computed ------------------------------ */
enum { MOST_AHEAD = 7 };
typedef struct {
  tile_view view[MOST_AHEAD];
  int64_t views, calls, done; /* everything has been asked for after `calls` calls */
} lookahead;

static void look_ahead_at(lookahead *a, tile_view v) {
  const bool taken = reads_slot(v.c->p, v.slot) || (writes_slot(v.c->p, v.slot) && !v.c->stream);
  const bool dense = (along_lanes(&v) ? v.lane : v.row) == 1; /* otherwise not worth it */
  if (taken && dense) a->view[a->views++] = v;
}

static void prefetch_strips(const tile_view *v, int64_t first, int64_t end) {
  const int64_t size = (int64_t)ambi_dtype_size(v->c->p->t[v->slot].dtype);
  const bool lanes = along_lanes(v), writes = writes_slot(v->c->p, v->slot);
  const int64_t bytes = (lanes ? v->lanes : v->rows) * size, step = (lanes ? v->row : v->lane) * size;
  const char *at = v->c->at[v->slot] + v->offset * size;
  for (int64_t i = first; i < end; i++)
    for (int64_t j = 0; j < bytes; j += 64) {
      if (writes)
        __builtin_prefetch(at + i * step + j, 1, 2);
      else
        __builtin_prefetch(at + i * step + j, 0, 2);
    }
}

static void look_ahead(lookahead *a) {
  for (int64_t i = 0; i < a->views; i++) {
    const tile_view *v = &a->view[i];
    const int64_t strips = along_lanes(v) ? v->rows : v->lanes;
    prefetch_strips(v, strips * a->done / a->calls, strips * (a->done + 1) / a->calls);
  }
  a->done++;
}
