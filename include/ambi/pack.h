/* pack.h -- kernel packs: compute kernels that can be run without trusting them.
 *
 * A pack is a folder: kernels.json, its signature kernels.json.sig, and WebAssembly modules (docs/packs.md).
 *
 *   uint8_t key[1][32] = {..};                                        whom this program trusts
 *   ambi_pack_options o = {.trusted = key, .trusted_count = 1, .state = "packs.state"};
 *   ambi_pack_host *host;     ambi_pack_host_create(&o, &host);
 *   ambi_pack *pack;          ambi_pack_open(host, "kernels", &pack);              verify: nothing is compiled yet
 *   ambi_pack_kernel *k;      ambi_pack_kernel_open(pack, "swiglu_f32", &k);       compile, instantiate, self-test
 *   ambi_pack_call call = {.pass = AMBI_FORWARD, .at = {x, gate, y, NULL, params}, .bytes = {n, n, n, 0, 12}};
 *   ambi_pack_run(k, &call);
 *
 * or, where packs are replaced while they are in use:
 *   ambi_pack_swap(host, pack);                                        tested beside the old one, then switched
 *   ambi_pack_run_active(host, "swiglu_f32", &call);
 *   ambi_pack_rollback(host);
 *
 * Rules
 *  - A module sees its own linear memory and nothing else. Memory, tables, stack and time are limited.
 *  - A trap, a missed deadline or a refused growth ends that instance; the next call gets a fresh one.
 *  - Before a module is compiled its code is counted: what would take longer than seconds is refused (docs/packs.md).
 *  - A module runs on the caller's stack: a thread with less than 640 KiB left is refused (AMBI_UNSUPPORTED).
 *  - Any threads may use one host, pack or kernel at once; a call belongs to one thread.
 *  - After fork() a child must use nothing of a host, nor destroy it: the thread that ends its calls is not there.
 *  - Needs Wasmtime's shared library (AMBI_WASMTIME names it) and libsodium (AMBI_SODIUM), loaded when a host is made;
 *    keys, and hosts that verify only, need libsodium alone.
 *    Without them ambi_pack_host_create says so, and the rest of ambi works.
 *  - Functions of this header print nothing; ambi_error() says what went wrong. */
#ifndef AMBI_PACK_H
#define AMBI_PACK_H
#include <ambi/ambi.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct ambi_pack_host ambi_pack_host;
typedef struct ambi_pack ambi_pack;
typedef struct ambi_pack_kernel ambi_pack_kernel;

/* ---- trust ---- */
typedef struct {
  const char *id, *hash; /* "swiglu_f32", "sha256:<hex>" */
} ambi_pack_allowed;

typedef struct {
  const uint8_t (*trusted)[32]; /* Ed25519 public keys                                                       */
  size_t trusted_count;
  const uint8_t (*revoked)[32]; /* signatures by these are refused, trusted or not                           */
  size_t revoked_count;
  const ambi_pack_allowed *allowed; /* the only modules that may be in a pack; none: all that the signer vouches for */
  size_t allowed_count;
  const char
      *state; /* a file that remembers the newest version of each pack ever activated; NULL: this host's memory */
  /* Told about each check, in order, passed or failed; each kernel that cannot be used, also where its fallback is;
   * and each time the switch below is made use of. It may call functions of this header. */
  void (*report)(void *context, const char *check, int passed, const char *sentence);
  void *report_context;
  int insecure_accept_unsigned_packs_for_development; /* needs `report`: nobody shall do this unknowingly */
  /* What the host allows a kernel at most, whatever its manifest asks for; 0: 60000 ms, and 65536 pages of 64 KiB. */
  uint32_t most_ticks, most_pages;
  int verify_only; /* packs are verified and described, no kernel can be opened: needs no Wasmtime */
} ambi_pack_options;

AMBI_API ambi_status ambi_pack_host_create(const ambi_pack_options *o, ambi_pack_host **out);
AMBI_API void ambi_pack_host_destroy(ambi_pack_host *host); /* after its packs, kernels, leases and calls */

/* ---- packs ---- */
AMBI_API ambi_status ambi_pack_open(ambi_pack_host *host, const char *folder, ambi_pack **out);
AMBI_API void ambi_pack_close(ambi_pack *pack); /* what was opened from it, or made active, stays */

typedef struct {
  const char *name, *version, *description;
  int32_t kernels;
  const char *manifest; /* kernels.json itself */
  size_t manifest_bytes;
} ambi_pack_info;

typedef struct {
  const char *id, *name, *category, *path;
  char hash[72]; /* "sha256:<hex>" */
  uint64_t bytes;
  uint32_t max_memory_pages, max_epoch_ticks, max_table_elements;
  int32_t self_tests;
} ambi_pack_kernel_info;

AMBI_API ambi_status ambi_pack_get_info(const ambi_pack *pack, ambi_pack_info *info);
AMBI_API ambi_status ambi_pack_get_kernel_info(const ambi_pack *pack, int32_t index, ambi_pack_kernel_info *info);

/* ---- kernels ---- */
/* Where `id` cannot be used, the kernel that the pack names as its fallback. */
AMBI_API ambi_status ambi_pack_kernel_open(ambi_pack *pack, const char *id, ambi_pack_kernel **out);
AMBI_API const char *ambi_pack_kernel_id(const ambi_pack_kernel *k); /* the fallback's, where that stepped in */
AMBI_API void ambi_pack_kernel_close(ambi_pack_kernel *k);

/* The regions of a call. WEIGHT is for kernels whose longer params end in the offset and size of one more input: the
 * host places it and appends those two words to the params. */
enum {
  AMBI_PACK_A,
  AMBI_PACK_B,
  AMBI_PACK_OUT,
  AMBI_PACK_SCRATCH,
  AMBI_PACK_PARAMS,
  AMBI_PACK_WEIGHT,
  AMBI_PACK_REGIONS
};

typedef struct {
  ambi_pass pass;
  void *at[AMBI_PACK_REGIONS]; /* scratch is copied in and out, out only out, the others only in */
  size_t bytes[AMBI_PACK_REGIONS];
  /* A fresh instance begins within it too. Filling or copying memory is not interrupted: at most one such step more. */
  uint32_t ticks; /* deadline in milliseconds, at most that of the manifest; 0: that of the manifest */
  int32_t code;   /* set: what the kernel returned; -1: it did not                                  */
  void *lease;    /* set by ambi_pack_lease                                                         */
} ambi_pack_call;

AMBI_API ambi_status ambi_pack_run(ambi_pack_kernel *k, ambi_pack_call *call);

/* Buffers without copies: points call->at into the linear memory of one instance, with room for call->bytes, until it
 * is returned. A run that ends the instance takes them away: call->at is then all NULL. A lease is of its kernel alone:
 * another, also that of a pack swapped in, refuses it, and returned it goes to its own. It keeps its pack in memory. */
AMBI_API ambi_status ambi_pack_lease(ambi_pack_kernel *k, ambi_pack_call *call);
AMBI_API void ambi_pack_return(ambi_pack_kernel *k, ambi_pack_call *call);

/* ---- the active pack ---- */
/* Every kernel is compiled and self-tested first; calls under way finish on the old pack. */
AMBI_API ambi_status ambi_pack_swap(ambi_pack_host *host, ambi_pack *pack);
AMBI_API ambi_status ambi_pack_rollback(ambi_pack_host *host); /* to the one before, once */
AMBI_API ambi_status ambi_pack_active(ambi_pack_host *host, const char *id, ambi_pack_kernel **out);
AMBI_API ambi_status ambi_pack_run_active(ambi_pack_host *host, const char *id, ambi_pack_call *call);

/* ---- for makers of packs: keys are 32 bytes, a signature is 64 bytes over the exact bytes of kernels.json ---- */
AMBI_API ambi_status ambi_pack_make_key(uint8_t secret[32]);
AMBI_API ambi_status ambi_pack_public_key(const uint8_t secret[32], uint8_t key[32]);
AMBI_API ambi_status ambi_pack_sign(const uint8_t secret[32], const void *data, size_t bytes, uint8_t signature[64]);
AMBI_API ambi_status ambi_pack_hash(const void *data, size_t bytes, char text[72]); /* "sha256:<hex>" */

#ifdef __cplusplus
}
#endif
#endif
