/* unary on CUDA: VALUE and GRAD name a function of elementwise.def, PARAMETER_A and _B its parameters. */
inline void point(const args &a, const real (&in)[INS], real (&out)[OUTS]) {
#if BACKWARD
  out[0] = GRAD(in[0], in[1], PARAMETER_A, PARAMETER_B);
#else
  out[0] = VALUE(in[0], PARAMETER_A, PARAMETER_B);
#endif
}
