/* layer_mamba2.c -- Mamba-2: waits for the op ssd. */
#include "layers.h"

void layer_mamba2(model_call *c, int64_t layer) {
  (void)layer;
  c->branch = 0;
}
