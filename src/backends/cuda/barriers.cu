/* barriers.cu -- barriers of 8 bytes in shared memory: a phase ends when `count` arrivals have come; phases alternate
 * 0, 1, 0 .. What a thread did before it arrived is seen by those who have waited.                                  */
#ifdef AMBI_EMULATED
inline void barrier_init(shared_at b, int count) { emu_phase_init(b, count); }
inline void barrier_arrive(shared_at b) { emu_phase_arrive(b); }
inline void barrier_arrive_copied(shared_at b) { emu_ended(EMU_COPIES, EMU_ALL), emu_phase_arrive(b); }
inline void barrier_wait(shared_at b, u32 phase) { emu_phase_wait(b, phase); }
#else
inline void barrier_init(shared_at b, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(b), "r"(count) : "memory");
}
inline void barrier_arrive(shared_at b) {
  asm volatile("{ .reg .b64 state;\n mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(b) : "memory");
}
/* Arrives when this thread's copies so far have. */
inline void barrier_arrive_copied(shared_at b) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(b) : "memory");
}
#if __CUDA_ARCH__ >= 900
#define WAIT "try_wait" /* which may sleep meanwhile */
#else
#define WAIT "test_wait"
#endif
/* Until phase `phase` has ended; phase 1 has, before there was any. */
inline void barrier_wait(shared_at b, u32 phase) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier." WAIT ".parity.shared.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(b),
      "r"(phase)
      : "memory");
}
#endif
