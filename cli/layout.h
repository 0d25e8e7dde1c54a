/* layout.h -- the same values at other addresses: strides a kernel has to cope with. */
#ifndef CLI_LAYOUT_H
#define CLI_LAYOUT_H
#include <ambi/ambi.h>

typedef enum {
  AS_GIVEN,
  PADDED,   /* rows with a gap behind each                              */
  REVERSED, /* first axis densest, with gaps                            */
  SWAPPED,  /* last two axes exchanged: (B, D, L) held as (B, L, D)     */
  FLIPPED,  /* last axis backwards                                      */
  ASSORTED, /* every slot another of these                              */
  LAYOUTS
} layout;

extern const char *const layout_name[LAYOUTS];

/* Gives t the strides of that layout; `salt` chooses in ASSORTED. A stride of 0 is kept. */
void layout_apply(ambi_tensor *t, layout how, unsigned salt);
/* All described slots and gradients of the op. */
void layout_apply_op(ambi_op *op, layout how);

#endif
