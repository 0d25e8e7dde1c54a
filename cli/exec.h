/* exec.h -- run one op on one device, from doubles to doubles, and watch what it touches.
 *
 * Every slot lies in its own allocation between guard zones. Outputs are poisoned with NaN before the run; after it,
 * every byte that is not an element of an output must be as it was: guards, gaps of strided views, inputs. Gaps of
 * inputs hold NaN, so reading one shows. Data travels by ambi_upload and ambi_download only. */
#ifndef CLI_EXEC_H
#define CLI_EXEC_H
#include <ambi/ambi.h>

#include "../util/sentence.h"

/* An open device and a stream of it. */
typedef struct {
  ambi_device *dev;
  ambi_stream *stream;
  char name[48]; /* "cpu/avx2" */
} target;

/* 0, or -1 and ambi_error() says why. */
int target_open(const char *device, const char *isa, int threads, target *t);
void target_close(target *t);

typedef struct {
  /* what to run */
  ambi_op op;
  const double *in[AMBI_SLOTS]; /* row-major values of every slot that is read or accumulated into       */
  int8_t share[AMBI_SLOTS];     /* 0: own memory; 1 + s: lies in the memory of slot s ..                  */
  uint64_t offset[AMBI_SLOTS];  /* .. that many bytes behind its element 0                                */
  int skew;                     /* elements between a 256-byte boundary and element 0: odd alignments;    */
                                /* other than 0, the workspace begins 64 bytes behind such a boundary     */
  int replayed;                 /* recorded and replayed, not run; cleared where the device has no graphs  */
  /* what came of it */
  ambi_status status;
  char error[SENTENCE_BYTES]; /* when status is not AMBI_OK                                                         */
  char damage[400];           /* when bytes changed that no output owns; else empty                                 */
  char kernel[128];
  uint32_t reads, writes;
  ambi_tensor t[AMBI_SLOTS];
  ambi_dtype accumulator;
  double *out[AMBI_SLOTS]; /* of every slot written */
} exec;

void exec_run(const target *t, exec *e);
void exec_free(exec *e); /* what exec_run allocated */

/* "x", "dw": the name of a slot of the op, gradients included. Returns out. */
char *slot_name(const ambi_op *op, int slot, char *out, size_t n);

#endif
