/* tokenizer_parts.h -- what a tokenizer is made of; see tokenizer.h for what it does.
 *
 *   text -> added tokens cut out (tokenizer_added.c) -> NFC (nfc.c) -> added tokens again
 *        -> words (tokenizer_split.c) -> bytes merged pair by pair (tokenizer_encode.c) -> ids */
#ifndef MODELS_TOKENIZER_PARTS_H
#define MODELS_TOKENIZER_PARTS_H
#include "maps.h"
#include "pattern.h"
#include "tokenizer.h"

enum { TOKENIZER_STEPS = 8, TOKENIZER_AROUND = 8, TOKENIZER_MOST_IDS = 1 << 20 };

typedef struct {
  const char *bytes; /* NULL: no token has this id */
  size_t length;
  int special;
} token;

/* ---- tokens that are found in the text before anything else ---- */

typedef struct {
  const char *text;
  size_t length;
  int32_t id;
  int lstrip, rstrip; /* takes the white space before it, after it */
} added_token;

typedef struct {
  int32_t child, sibling, token; /* -1: none */
  unsigned char byte;
} trie_node;
typedef struct {
  added_token *tokens;
  trie_node *nodes;
  size_t count, used, room;
  int32_t first[256]; /* the node of each first byte */
} added_set;

void added_init(added_set *s);
int added_put(added_set *s, const added_token *a); /* 0: no memory */
void added_free(added_set *s);

/* A walk over text: what lies before the next added token and its id (-1: none, the rest). 0 when all is done. */
typedef struct {
  const char *at, *end;
} added_walk;
int added_next(const added_set *s, added_walk *w, const char **plain, const char **plain_end, int32_t *id);

/* ---- words ---- */

typedef struct {
  int prefix_space; /* puts a space before a piece that has none   */
  pattern *cut;     /* cuts a piece where it matches; NULL: does not */
  int drop;         /* what lies between the matches goes          */
} split_step;

extern const char split_gpt2[]; /* the pattern of ByteLevel */

typedef struct {
  const split_step *steps;
  int count;
  arena *kept;      /* of text that was changed: words lie in the text or in here */
  int64_t patience; /* of pattern_match */
  int (*put)(void *context, const char *word, size_t bytes); /* 0 stops */
  void *context;
} splitter;
int split_words(splitter *s, const char *text, size_t bytes); /* 0: no memory, no patience, or put said so */
int64_t split_patience(size_t bytes);                         /* far more than an honest pattern needs */

/* ---- the whole ---- */

struct tokenizer {
  char *json; /* as it was read or made, for tokenizer_save */
  size_t json_bytes;
  arena strings;
  token *tokens; /* by id */
  int32_t size;
  int32_t byte_id[256];
  text_map vocabulary; /* bytes of a token of the model to its id             */
  pair_map merges;     /* two ids to rank << 32 | id                          */
  int ignore_merges;   /* a word that is a token becomes it, whatever the merges */
  int nfc;
  split_step steps[TOKENIZER_STEPS];
  int n_steps, bytes_done;   /* bytes_done: ByteLevel was among them */
  added_set raw, normalized; /* looked for before and after NFC */
  int32_t before[TOKENIZER_AROUND], after[TOKENIZER_AROUND];
  int n_before, n_after;
  int32_t bos, eos;
};

/* How a tokenizer.json writes a byte: printable ones as themselves, the others as U+0100 and on. */
uint32_t byte_char(unsigned char byte);
int char_byte(uint32_t c); /* -1: stands for no byte */

/* tokenizer_json_model.c: vocabulary, merges and added tokens. tokenizer_json.c: the rest of the file. */
typedef struct json_value json_value;
typedef struct {
  tokenizer *t;
  char *err;
  size_t n;
} token_reader;
__attribute__((format(printf, 2, 3))) void reader_say(const token_reader *r, const char *format, ...);
#define reader_fail(...) (reader_say(__VA_ARGS__), 0) /* so that callers can return it */
/* 1 when v is an object whose members are all in the list (which ends in NULL). */
int reader_keys(const token_reader *r, const json_value *v, const char *where, const char *const *known);
/* A boolean, or the default when it is absent. 0: it is something else. */
int reader_flag(const token_reader *r, const json_value *v, const char *key, int absent, int *flag);
int read_model(token_reader *r, const json_value *model, const json_value *added);

/* A tokenizer.json of a byte-level BPE, malloc'd; tokens by id, id 0 the special one when `special` is not NULL. */
typedef struct {
  const char *const *tokens;
  const size_t *lengths;
  int32_t count;
  const int32_t (*merges)[2];
  int32_t merge_count;
  const char *special; /* a name, of `special_id`, which has no place in tokens; or NULL */
  int32_t special_id;
  int cut_words; /* GPT-2's words, or none */
} bpe_text;
char *tokenizer_write(const bpe_text *b, size_t *bytes);

#endif
