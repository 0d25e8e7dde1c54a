/* gated on CUDA: y = v act(g);  dv = dy act(g);  dg = dy v act'(g). VALUE and GRAD are those of act. */
inline void point(const args &a, const real (&in)[INS], real (&out)[OUTS]) {
  const real v = in[0], g = in[1];
#if BACKWARD
  const real dy = in[2];
  out[0] = dy * VALUE(g, PARAMETER_A, PARAMETER_B);
  out[1] = GRAD(g, dy * v, PARAMETER_A, PARAMETER_B);
#else
  out[0] = v * VALUE(g, PARAMETER_A, PARAMETER_B);
#endif
}
