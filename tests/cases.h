/* cases.h -- a few small, valid cases of every op (the text of cli/case.h), for tests that walk over all ops.
 * test_api fails when an op of the library has no case here. */
#ifndef AMBI_TEST_CASES_H
#define AMBI_TEST_CASES_H

static const char *const good_cases[] = {
    "unary x=5x33 function=silu",
    "unary x=3x7x9@96,11,1 function=elu a=0.5 b=1",
    "gated v=5x33 g=5x33 gate=swiglu",
    "gated v=3x40@80,1 g=3x40@80,1 gate=geglu_tanh",
    "add a=5x33 b=5x33 alpha=2 beta=-1",
    "add a=5x33 b=5x33@0,1",
    "cast x=5x33:f32 y=5x33:bf16",
    "copy x=4x5x6@6,24,1",
    "fill y=5x33:f32 value=2.5",
    "rmsnorm x=7x33 w=33 residual=7x33 rstd sum",
    "rmsnorm x=2x3x40 offset=1",
    "rmsnorm x=64x300 w=300",
    "layernorm x=7x33 w=33 b=33 residual=7x33 sum mean rstd",
    "layernorm x=64x300 w=300 b=300",
    "linear x=5x33 w=17x33 b=17",
    "linear x=3x40x64 w=70x64",
    "conv1d x=2x5x33 w=5x4 b=5 x0=2x5x3 silu=true x_last",
    "conv1d x=1x9x40 w=9x3",
    "selective_scan u=2x6x37 delta=2x6x37 a=6x5 b=2x5x37 c=2x5x37 d=6 z=2x6x37 delta_bias=6 h0=2x6x5 softplus=1 h_last",
    "selective_scan u=2x4x40 delta=2x4x40 a=4x16 b=2x2x16x40 c=2x2x16x40 seq_idx=2x40:i32 zoh=true",
    "adamw p=333:f32 g=333 m=333:f32 v=333:f32 lr=1:f32 step=1:i64",
    "grad_norm g=3333 max_norm=1",
    "softmax x=5x33 scale=0.5",
    "softmax x=3x40x64 log=true",
    "cross_entropy logits=5x33 target=5:i32 lse grad label_smoothing=0.1",
    "cross_entropy logits=3x40x64 target=3x40:i64 reduction=each softcap=3 z_loss=0.1",
    "linear_cross_entropy x=5x9 w=33x9 b=33 target=5:i32 lse label_smoothing=0.1",
    "linear_cross_entropy x=3x40x16 w=70x16 target=3x40:i64 reduction=each softcap=3",
    "embedding tokens=3x20 w=50x33",
    "embedding tokens=400:i64 w=9x20",
    "rope x=2x3x17x24 positions=2x17 frequencies=8:f32 dims=16",
    "rope x=3x40x66 interleaved=true theta=500000 offset=9",
    "attention q=2x4x9x8 k=2x2x11x8 v=2x2x11x8 lengths=2 causal=true softcap=2 lse",
    "attention q=1x2x110x16@3520,16,32,1 k=1x2x100x16 v=1x2x100x16 window=40",
    "ssd x=2x37x4x6 delta=2x37x4 a=4 b=2x37x2x5 c=2x37x2x5 d=4 delta_bias=4 h0=2x4x6x5 softplus=1 a_log=1 h_last",
    "ssd x=2x70x4x3 delta=2x70x4 a=4 b=2x70x1x16 c=2x70x1x16 seq_idx=2x70:i32",
};
enum { GOOD_CASES = sizeof good_cases / sizeof *good_cases };

#endif
