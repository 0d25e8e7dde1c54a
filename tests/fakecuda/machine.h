/* machine.h -- what a kernel compiled for the emulator and the emulator know of each other. C and C++, no headers.
 *
 * A module exports `const emu_machine *emu`, set when it is loaded, `emu_watched` when it tells of every access to
 * memory, and for each kernel NAME (appended by nvrtc.c)
 *   emu_call_NAME(const void *args)   runs one thread of it
 *   emu_size_NAME, emu_bounds_NAME    bytes of its argument; most threads in a block, 0 when it does not say */
#ifndef FAKECUDA_MACHINE_H
#define FAKECUDA_MACHINE_H

enum { EMU_WARP = 32, EMU_EVERYONE = -1 };
enum { EMU_ASSERT = 710, EMU_ILLEGAL_ADDRESS = 700, EMU_TRAP = 715, EMU_LAUNCH_FAILED = 719 };
typedef enum { EMU_COUNT, EMU_AND, EMU_OR } emu_vote; /* what a barrier makes of its threads' predicates */

typedef enum { EMU_COPIES, EMU_PRODUCTS, EMU_WAYS } emu_way; /* what goes on while its thread does: cp.async, wgmma */
enum { EMU_ALL = -1 };

typedef struct {
  unsigned x, y, z;
} emu_dim;

/* What stands in the 128 bytes of a tensor map: 16-bit elements, `step` bytes from one line to the next; its boxes go
 * to rows of 128 bytes, whose chunks of 16 are swapped by row: chunk c of row r is at c ^ r % 8. */
typedef struct {
  unsigned long long at, shape[2], step; /* neighbours, lines */
  unsigned box[2];
} emu_map;

/* `thread` and `lane` are those of the fiber that runs now. */
typedef struct {
  emu_dim thread, block, block_dim, grid_dim;
  unsigned lane;
  char *dynamic; /* the block's dynamic shared memory */

  /* Waits for `threads` threads at barrier `id`, 0: all that have not left the kernel. */
  int (*barrier)(int id, int threads, emu_vote vote, int predicate);
  /* Gives `size` bytes and gets those of lane `from`, or of EMU_EVERYONE (32 * size bytes); bytes of lanes that do not
   * take part are 0xFF. All lanes of `mask` must come, those gone excepted. Returns the lanes that came. */
  unsigned (*exchange)(unsigned mask, const void *mine, unsigned long size, int from, void *out);
  unsigned (*active)(void); /* lanes of this warp still in the kernel */
  void (*pause)(void);      /* lets the others run */

  /* An mbarrier: a phase ends when `count` have arrived; waits until phase `phase` (0, 1, 0 ..) has. */
  void (*phase_init)(void *at, int count);
  void (*phase_arrive)(void *at);
  void (*phase_wait)(const void *at, unsigned phase);

  /* For races.c: an access to memory; one that begins now and ends in a later call, of which those so far are a batch;
   * all but the last `left` batches have ended, or EMU_ALL. */
  void (*access)(const void *at, unsigned long bytes, int write, const void *pc);
  void (*begun)(emu_way w, void *at, unsigned long bytes, const void *pc);
  void (*batch)(emu_way w);
  void (*ended)(emu_way w, int left);
  void (*fail)(int code, const char *sentence);
} emu_machine;

#endif
