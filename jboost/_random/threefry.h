// Random bits by row, as JAX draws them.

#ifndef JBOOST_RANDOM_THREEFRY_H_
#define JBOOST_RANDOM_THREEFRY_H_

#include <algorithm>
#include <cstdint>

#include "../_runtime/parallel.h"
#include "../_runtime/simd.h"

namespace jboost {

namespace internal {

JBOOST_INLINE uint32_t rotated(uint32_t x, int bits) { return x << bits | x >> (32 - bits); }

// Encrypts a counter of two words by twenty rounds of Threefry (Salmon et al. 2011), and joins the words of the result.
JBOOST_INLINE uint32_t threefry(const uint32_t* key, uint32_t high, uint32_t low) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t keys[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA};
  uint32_t x = high + keys[0], y = low + keys[1];
  for (uint32_t group = 0; group < 5; ++group) {
    for (int i = 0; i < 4; ++i) {
      x += y;
      y = rotated(y, kRotations[group % 2][i]) ^ x;
    }
    x += keys[(group + 1) % 3];
    y += keys[(group + 2) % 3] + group + 1;
  }
  return x ^ y;
}

}  // namespace internal

JBOOST_CLONES static void random_bits(const uint32_t* key, int64_t first, int64_t n, uint32_t* bits) {
  const uint32_t a = key[0], b = key[1];
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t words[2] = {a, b};
    bits[i] = internal::threefry(words, static_cast<uint32_t>((first + i) >> 32), static_cast<uint32_t>(first + i));
  }
}

inline void random_bits(const Pool& pool, const uint32_t* key, int64_t n, uint32_t* bits) {
  constexpr int64_t kBlock = 1 << 14, kWork = 4;  // a row takes as long as so many additions
  Crew(pool, pool.workers_for(kWork * n)).run((n + kBlock - 1) / kBlock, [&](int64_t block, int64_t) {
    const int64_t first = block * kBlock;
    random_bits(key, first, std::min(kBlock, n - first), bits + first);
  });
}

}  // namespace jboost

#endif  // JBOOST_RANDOM_THREEFRY_H_
