/* multiply.c -- 128-bit products, which clang asks its runtime library for when it checks 64-bit ones for overflow. */
typedef unsigned __int128 u128;
typedef unsigned long long u64;

__int128 __multi3(__int128 a, __int128 b);

/* Halves of 32 bits, as at school; what lies above 128 bits is dropped. */
__int128 __multi3(__int128 a, __int128 b) {
  const u64 low = 0xffffffff, a0 = (u64)a & low, a1 = (u64)a >> 32, b0 = (u64)b & low, b1 = (u64)b >> 32;
  const u64 middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & low);
  const u64 upper = a1 * b1 + (middle >> 32) + (other >> 32);
  const u64 cross = (u64)a * (u64)((u128)b >> 64) + (u64)((u128)a >> 64) * (u64)b;
  return (__int128)((u128)(upper + cross) << 64 | (other << 32 | (a0 * b0 & low)));
}
