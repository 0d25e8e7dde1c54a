/* pack.h -- what the subcommands of `ambi pack` share. Each takes argv[0] = its name and returns the exit status. */
#ifndef CLI_PACK_H
#define CLI_PACK_H
#include <ambi/pack.h>
#include <stdio.h>

#include "options.h"

int pack_keygen(int argc, char **argv);
int pack_sign(int argc, char **argv);
int pack_build(int argc, char **argv);
int pack_verify(int argc, char **argv);
int pack_info(int argc, char **argv);
int pack_run(int argc, char **argv);
int pack_bench(int argc, char **argv);
int pack_swap(int argc, char **argv);

/* ---- keys: 64 hex digits, in a file or as they are ---- */
int key_read(const char *file_or_hex, uint8_t key[32]); /* 1, or 0 after printing why not */
int secret_read(const char *file, uint8_t secret[32]);  /* likewise; no .pub              */
void key_text(const uint8_t key[32], char hex[65]);

/* Writes FOLDER/kernels.json.sig; 1, or 0 after printing why not. */
int sign_folder(const char *folder, const uint8_t secret[32], char hex[65]); /* hex: the public key, for people */

/* ---- trust: the options that every command which opens a pack has ---- */
enum { MOST_KEYS = 16 };
typedef enum { ENGINE_NEEDED, ENGINE_WANTED, ENGINE_UNUSED } engine_use; /* of Wasmtime */

typedef struct {
  const char *trust, *revoked, *state;
  int64_t most_ticks, most_pages; /* 0: the host's own */
  int insecure, verbose, refused; /* refused: how many checks have failed */
  uint8_t keys[MOST_KEYS][32], bad[MOST_KEYS][32];
  engine_use engine;
  char lacks[400]; /* ENGINE_WANTED: why there is none; empty: there is one */
} trust_options;

#define TRUST_OPTIONS(t)                                                                                          \
  {"trust", OPT_STRING, &(t).trust, "KEY[,KEY]", "public keys to trust: files, or 64 hex digits each"},           \
      {"revoked", OPT_STRING, &(t).revoked, "KEY[,KEY]", "keys whose signatures are refused"},                    \
      {"state", OPT_STRING, &(t).state, "FILE", "remembers the newest version ever activated"},                   \
      {"most-ticks", OPT_INT, &(t).most_ticks, "N", "longest call, whatever a pack asks for, in ms; 60000"},      \
      {"most-pages", OPT_INT, &(t).most_pages, "N", "most memory of a kernel, likewise, in 64 KiB; 65536"}, {     \
    "insecure-accept-unsigned-packs-for-development", OPT_FLAG, &(t).insecure, NULL, "do not check the signature" \
  }

/* options_parse for commands that open packs: every operand is needed, and a key to trust. */
int trust_parse(const command_line *c, int argc, char **argv, const char **operand, const trust_options *t);
/* A host for these options, NULL after printing why not. With t->verbose each check is printed. */
ambi_pack_host *trust_host(trust_options *t);
int trouble(const char *what); /* prints ambi_error(); 1 */

/* Text of a manifest, or a sentence that quotes it: it moves no cursor and begins no line that looks like another. */
void put_plain(FILE *to, const char *text);

#endif
