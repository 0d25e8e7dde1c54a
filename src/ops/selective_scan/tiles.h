/* tiles.h -- two axes of a tensor as a tile of reals, whatever its dtype and strides.
 *
 * A tile has lanes (channels, or states) and rows (steps, or states). Element (row, lane) of memory goes to
 * out[lane / VL * to.vector + row * to.row + lane % VL]; lanes are padded with zeros to whole vectors. Strips run along
 * the denser of the two axes: along lanes they are copied, along rows VL of them are transposed at a time.          */
#ifndef AMBI_SCAN_TILES_H
#define AMBI_SCAN_TILES_H
#include "backends/cpu/gemm/transpose.h"
#include "backends/cpu/sums.h"
#include "ops/selective_scan/op.h"

enum { U = AMBI_SCAN_U, DELTA = AMBI_SCAN_DELTA, A = AMBI_SCAN_A, B = AMBI_SCAN_B, C = AMBI_SCAN_C, D = AMBI_SCAN_D };
enum { Z = AMBI_SCAN_Z, DELTA_BIAS = AMBI_SCAN_DELTA_BIAS, H0 = AMBI_SCAN_H0, SEQ_IDX = AMBI_SCAN_SEQ_IDX };
enum { Y = AMBI_SCAN_Y, H_LAST = AMBI_SCAN_H_LAST, CHUNK_STATE = AMBI_SCAN_CHUNK_STATE };
#define GRAD AMBI_GRAD

enum {
  STEPS = SCAN_CHUNK,            /* of a chunk                            */
  WIDTH = 256 * 8 / AMBI_REAL,   /* most channels in a block              */
  STATES = 16,                   /* whose A, B and C are loaded at a time */
  SOME = 4,                      /* states in registers                   */
  COEFFICIENTS = STEPS * STATES, /* in a tile of B or C, constant or not  */
};
_Static_assert(STEPS % LANES == 0 && WIDTH % LANES == 0 && STATES % SOME == 0, "whole vectors");
_Static_assert(COEFFICIENTS >= STATES * WIDTH && STEPS <= (int)TILE && WIDTH <= (int)TILE, "room");

typedef struct {
  int64_t vector, row;
} tile_layout;

/* One tile of a slot: where element (0, 0) is, and the strides to the next lane and the next row. */
typedef struct {
  const cpu_call *c;
  int slot;
  int64_t offset, lane, row, lanes, rows;
} tile_view;

static bool along_lanes(const tile_view *v) { return v->rows == 1 || magnitude(v->lane) <= magnitude(v->row); }

/* The first strip, `skip` strips in; and the bytes from one strip to the next. */
static strip first_strip(const tile_view *v, int64_t skip) {
  const bool lanes = along_lanes(v);
  return strip_of(v->c, v->slot, v->offset + skip * (lanes ? v->row : v->lane), lanes ? v->lane : v->row);
}
static int64_t strip_step(const tile_view *v) {
  return (along_lanes(v) ? v->row : v->lane) * (int64_t)ambi_dtype_size(v->c->p->t[v->slot].dtype);
}

/* ---- load ---- */
static void load_rows(const tile_view *v, real *out, tile_layout to) {
  TILE_OF_REALS buffer[WIDTH];
  strip s = first_strip(v, 0);
  const int64_t step = strip_step(v);
  for (int64_t row = 0; row < v->rows; row++, s.at += step) {
    const real *from = strip_in(&s, 0, v->lanes, buffer);
    real *at = out + row * to.row;
    for (int64_t i = 0; i < v->lanes; i += VL, at += to.vector) v_store(at, v_get(from + i, v->lanes - i));
  }
}

/* One vector of lanes: VL strips along rows, transposed */
static void load_columns(const tile_view *v, int64_t lane, real *out, tile_layout to) {
  TILE_OF_REALS buffer[LANES][STEPS];
  const real *from[LANES];
  strip s = first_strip(v, lane);
  const int64_t step = strip_step(v);
  const bool in_place = is_direct(&s) && v->rows % VL == 0; /* whole vectors can be read where they are */
  for (int64_t i = 0; i < VL; i++, s.at += step) {
    const bool there = lane + i < v->lanes;
    from[i] = there && in_place ? (const real *)(void *)s.at : buffer[i];
    if (!there || v->rows % VL) memset(buffer[i], 0, (size_t)ceil_div(v->rows, VL) * VBYTES);
    if (there && !in_place) read_reals(s.dtype, s.at, s.stride, v->rows, buffer[i]);
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

/* ---- store ---- */
static void store_rows(const tile_view *v, const real *in, tile_layout from) {
  TILE_OF_REALS buffer[WIDTH];
  strip s = first_strip(v, 0);
  const int64_t step = strip_step(v);
  for (int64_t row = 0; row < v->rows; row++, s.at += step) {
    const real *at = in + row * from.row;
    real *to = strip_out(&s, 0, buffer);
    for (int64_t i = 0; i < v->lanes; i += VL, at += from.vector) v_put(to + i, v_load(at), v->lanes - i);
    strip_put(&s, 0, v->lanes, to);
  }
}

static void store_columns(const tile_view *v, int64_t lane, const real *in, tile_layout from) {
  TILE_OF_REALS buffer[LANES][STEPS];
  strip s = first_strip(v, lane);
  const int64_t step = strip_step(v), lanes = min64(VL, v->lanes - lane);
  const bool in_place = strip_out(&s, 0, NULL) && v->rows % VL == 0; /* whole vectors can be written where they go */
  for (int64_t row = 0; row < v->rows; row += VL) {
    vr t[LANES];
    for (int64_t i = 0; i < VL; i++) t[i] = row + i < v->rows ? v_load(in + (row + i) * from.row) : (vr){0};
    v_transpose(t);
    for (int64_t i = 0; i < lanes; i++) v_store((in_place ? (real *)(void *)(s.at + i * step) : buffer[i]) + row, t[i]);
  }
  for (int64_t i = 0; i < lanes && !in_place; i++, s.at += step) strip_put(&s, 0, v->rows, buffer[i]);
}

/* A slot that is not wanted is left alone. */
static void store_tile(const tile_view *v, const real *in, tile_layout from) {
  if (!writes_slot(v->c->p, v->slot) || v->rows == 0) return;
  if (along_lanes(v))
    store_rows(v, in, from);
  else
    for (int64_t lane = 0; lane < v->lanes; lane += VL) store_columns(v, lane, in + lane / VL * from.vector, from);
}

/* ---- prefetching, strip by strip, while something else is computed ---- */
enum { MOST_AHEAD = 7 };
typedef struct {
  tile_view view[MOST_AHEAD];
  int64_t views, calls, done; /* everything has been prefetched after `calls` calls */
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

#endif
