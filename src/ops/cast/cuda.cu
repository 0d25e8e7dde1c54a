/* cast on CUDA: loads and stores convert. */
inline void point(const args &a, const real (&in)[INS], real (&out)[OUTS]) { out[0] = in[0]; }
