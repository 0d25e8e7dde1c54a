/* pattern_parts.h -- a compiled pattern: nodes that each say what comes next. See pattern.h. */
#ifndef MODELS_PATTERN_PARTS_H
#define MODELS_PATTERN_PARTS_H
#include "pattern.h"

enum { PATTERN_NODES = 256, PATTERN_RANGES = 16, PATTERN_DEPTH = 16 };

/* A set of characters. Below 128 by a bit each (negation is in the bits); beyond, by class and by range. */
typedef struct {
  uint64_t ascii[2];
  int classes; /* of unicode.h */
  int negated;
  int ranges;
  struct {
    uint32_t first, last;
  } range[PATTERN_RANGES];
} char_set;

typedef enum { NODE_SET, NODE_EITHER, NODE_BRANCH, NODE_JOIN, NODE_LOOK, NODE_ACCEPT } node_type;

/* SET     min..max characters of the set, as many as possible; possessive: none of them given back
 * EITHER  the first BRANCH, at `body`, that leads to a match; the branches of it all end in one JOIN
 * BRANCH  its nodes begin at `body`, the next branch is `other` (-1: none); `first` are the bytes it may begin with
 * LOOK    its nodes begin at `body` and end in ACCEPT; negated: they must not match */
typedef struct {
  node_type type;
  int next, body, other;
  int set, possessive, negated;
  int64_t min, max;
  uint64_t first[4];
} pattern_node;

struct pattern {
  pattern_node node[PATTERN_NODES];
  char_set set[PATTERN_NODES];
  int nodes, sets, start;
};

int set_has(const char_set *s, uint32_t c);

#endif
