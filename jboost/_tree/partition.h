// Rows of a node sent to two sides, eight at a time where the processor arranges bytes by a table.

#ifndef JBOOST_TREE_PARTITION_H_
#define JBOOST_TREE_PARTITION_H_

#include <array>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#include <tmmintrin.h>
#define JBOOST_ARRANGES_BYTES 1
#endif

#include "../_histogram/tables.h"
#include "../_runtime/simd.h"

namespace jboost {

// The codes of one column, those of row i at [i * step].
template <typename Code>
struct Column {
  using Type = Code;
  const Code* codes;
  int64_t step;

  Code operator[](int64_t row) const { return codes[row * step]; }
  Column from(int64_t row) const { return {codes + row * step, step}; }
};

namespace internal {

// Where the next row of each side goes. Every row is stored on both, and overwritten where it does not belong.
struct Sides {
  RowNumber *left, *right;
};

// Sends the rows from the i-th on, one by one: no branch to be guessed.
template <bool kInTurn, typename Code, typename Test>
JBOOST_INLINE void send_each(Column<Code> codes, const Test& goes_right, const RowNumber* rows, int64_t i, int64_t n,
                             Sides& sides) {
  for (; i < n; ++i) {
    const RowNumber row = kInTurn ? static_cast<RowNumber>(i) : rows[i];
    const uint32_t right = goes_right(codes[row]);
    *sides.left = row;
    *sides.right = row;
    sides.left += !right;
    sides.right += right;
  }
}

#ifdef JBOOST_ARRANGES_BYTES
constexpr int kTogether = 8;  // row numbers in 16 bytes
static_assert(kTogether * sizeof(RowNumber) == 16, "a vector is full of row numbers");

// [flags of the rows][bytes]: where to take bytes from for the flagged of eight rows to come first, in their order.
using Arrangements = std::array<std::array<uint8_t, 16>, 1 << kTogether>;
constexpr Arrangements arrangements() {
  Arrangements result{};
  for (int flags = 0; flags < 1 << kTogether; ++flags)
    for (int row = 0, place = 0; row < kTogether; ++row)
      if (flags >> row & 1)
        for (int byte = 0; byte < 2; ++byte) result[flags][place++] = static_cast<uint8_t>(2 * row + byte);
  return result;
}
alignas(16) constexpr Arrangements kArrangements = arrangements();

inline bool arranges_bytes() {
  static const bool does = __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("popcnt");
  return does;
}

__attribute__((target("ssse3"))) inline void store_flagged(__m128i rows, uint32_t flags, RowNumber* to) {
  const auto* places = reinterpret_cast<const __m128i*>(kArrangements[flags].data());
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_shuffle_epi8(rows, _mm_load_si128(places)));
}

// Sends rows eight by eight as long as there are so many; returns how many it sent. A store ends before rows that are
// still to be read, as no more rows went to a side than were read.
template <bool kInTurn, typename Code, typename Test>
__attribute__((target("ssse3,popcnt"))) int64_t send_together(Column<Code> codes, const Test& goes_right,
                                                              const RowNumber* rows, int64_t n, Sides& sides) {
  const __m128i turns = _mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7);
  int64_t i = 0;
  for (; i + kTogether <= n; i += kTogether) {
    const __m128i here = kInTurn ? _mm_add_epi16(_mm_set1_epi16(static_cast<int16_t>(i)), turns)
                                 : _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows + i));
    uint32_t right = 0;
#pragma GCC unroll 8
    for (int j = 0; j < kTogether; ++j) right |= goes_right(codes[kInTurn ? i + j : rows[i + j]]) << j;
    store_flagged(here, right ^ 0xff, sides.left);
    store_flagged(here, right, sides.right);
    const int n_right = __builtin_popcount(right);
    sides.left += kTogether - n_right;
    sides.right += n_right;
  }
  return i;
}
#else
inline bool arranges_bytes() { return false; }
template <bool kInTurn, typename Code, typename Test>
int64_t send_together(Column<Code>, const Test&, const RowNumber*, int64_t, Sides&) {
  return 0;
}
#endif

}  // namespace internal

// Moves the rows that go right behind the others, both in their order and in place; returns how many went left. The rows
// are those of `rows`, or all in turn; `spare` has room for as many.
template <bool kInTurn, typename Code, typename Test>
int64_t partition(Column<Code> codes, const Test& goes_right, RowNumber* rows, int64_t n, RowNumber* spare,
                  bool together = internal::arranges_bytes()) {
  internal::Sides sides{rows, spare};
  const int64_t sent = together ? internal::send_together<kInTurn>(codes, goes_right, rows, n, sides) : 0;
  internal::send_each<kInTurn>(codes, goes_right, rows, sent, n, sides);
  std::memcpy(sides.left, spare, (sides.right - spare) * sizeof(RowNumber));
  return sides.left - rows;
}

}  // namespace jboost

#endif  // JBOOST_TREE_PARTITION_H_
