/* add on CUDA: y = alpha a + beta b;  da = alpha dy;  db = beta dy. */
inline void point(const args &a, const real (&in)[INS], real (&out)[OUTS]) {
#if BACKWARD
  out[0] = ALPHA * in[0];
  out[1] = BETA * in[0];
#else
  out[0] = ALPHA * in[0] + BETA * in[1];
#endif
}
