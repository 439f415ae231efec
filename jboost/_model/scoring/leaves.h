// The leaf of every row of a block, by the vectors of GCC and Clang. `codes` is [columns, rows], `leaf` is [rows].

#ifndef JBOOST_SCORING_LEAVES_H_
#define JBOOST_SCORING_LEAVES_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../../_runtime/simd.h"
#include "plan.h"

namespace jboost {
namespace internal {

constexpr int64_t kMostComparedLevels = 8;  // of a depthwise tree; row by row, deeper ones take fewer instructions
constexpr int64_t kTogether = 3;            // levels of a subtree that stays in registers

template <typename Code>
JBOOST_INLINE bool is_in(const uint32_t* set, int64_t n_words, Code code) {
  return set[std::min<int64_t>(code / 32, n_words - 1)] >> (code % 32) & 1;
}

// Any tree: each row is led down on its own.
template <typename Leaf, typename Code>
JBOOST_INLINE void find_by_walking(const Split* splits, bool symmetric, int64_t depth, const uint32_t* sets,
                                   int64_t n_words, const Code* codes, int64_t rows, Leaf* __restrict leaf) {
  std::memset(leaf, 0, rows * sizeof(Leaf));
  for (int64_t level = 0; level < depth; ++level) {
    const Split* of_level = splits + (symmetric ? level : (int64_t{1} << level) - 1);
    for (int64_t i = 0; i < rows; ++i) {
      const Split split = of_level[symmetric ? 0 : leaf[i]];
      const Code code = codes[split.column * rows + i];
      const bool right = split.set >= 0 ? is_in(sets + split.set * n_words, n_words, code)
                                        : static_cast<Code>(code - split.shift) > static_cast<Code>(split.above);
      leaf[i] = static_cast<Leaf>(2 * leaf[i] + right);
    }
  }
}

// Two vectors of codes, which share the reading of a split.
template <typename Code, int kBytes>
struct Lanes {
  typedef Code Vector __attribute__((vector_size(kBytes)));
  typedef std::make_signed_t<Code> Mask __attribute__((vector_size(kBytes)));
  static constexpr int64_t kRows = 2 * kBytes / sizeof(Code);
  Vector half[2];
};

// A symmetric tree: one comparison a level.
template <int kBytes, typename Code>
JBOOST_INLINE void find_symmetric(const Split* splits, int64_t depth, const uint32_t* sets, int64_t n_words,
                                  const Code* codes, int64_t rows, Code* __restrict leaf) {
  using L = Lanes<Code, kBytes>;
  for (int64_t first = 0; first < rows; first += L::kRows) {
    L number{};
    for (int64_t level = 0; level < depth; ++level) {
      const Split& split = splits[level];
      const Code* column = codes + split.column * rows + first;
      Code in_set[L::kRows];
      if (split.set >= 0) {
        const uint32_t* set = sets + split.set * n_words;
        for (int64_t i = 0; i < L::kRows; ++i) in_set[i] = is_in(set, n_words, column[i]);
        column = in_set;
      }
      const Code shift = static_cast<Code>(split.shift), above = static_cast<Code>(split.above);
      for (int i = 0; i < 2; ++i) {
        typename L::Vector code;
        std::memcpy(&code, column + i * (L::kRows / 2), kBytes);
        const typename L::Mask goes_right = code - shift > typename L::Vector{} + above;
        number.half[i] = number.half[i] + number.half[i] - reinterpret_cast<typename L::Vector>(goes_right);
      }
    }
    std::memcpy(leaf + first, &number, sizeof(L));
  }
}

// The leaf number below a node, from its lowest level up: each node chooses between the numbers of its children.
// Comparing in all nodes takes fewer instructions than finding, for each row, the node to compare in.
template <int kLevels, typename Code, int kBytes>
struct Subtree {
  static JBOOST_INLINE void find(const Split* splits, int64_t slot, const Code* codes, int64_t rows, Code lowest_bit,
                                 const Lanes<Code, kBytes>* below, Lanes<Code, kBytes>& number) {
    using L = Lanes<Code, kBytes>;
    constexpr int64_t kHalf = int64_t{1} << (kLevels - 1);
    L left, right;
    Subtree<kLevels - 1, Code, kBytes>::find(splits, 2 * slot + 1, codes, rows, lowest_bit, below, left);
    Subtree<kLevels - 1, Code, kBytes>::find(splits, 2 * slot + 2, codes, rows, lowest_bit, below ? below + kHalf : below,
                                             right);
    const Split& split = splits[slot];
    const Code shift = static_cast<Code>(split.shift), above = static_cast<Code>(split.above);
    const Code bit = static_cast<Code>(lowest_bit << (kLevels - 1));
    for (int i = 0; i < 2; ++i) {
      typename L::Vector code;
      std::memcpy(&code, codes + split.column * rows + i * (L::kRows / 2), kBytes);
      const typename L::Mask goes_right = code - shift > typename L::Vector{} + above;
      number.half[i] = goes_right ? right.half[i] | bit : left.half[i];
    }
  }
};

template <typename Code, int kBytes>
struct Subtree<0, Code, kBytes> {
  static JBOOST_INLINE void find(const Split*, int64_t, const Code*, int64_t, Code, const Lanes<Code, kBytes>* below,
                                 Lanes<Code, kBytes>& number) {
    if (below) {
      number = *below;
    } else {
      number.half[0] = number.half[1] = typename Lanes<Code, kBytes>::Vector{};
    }
  }
};

template <int kLevels, typename Code, int kBytes>
JBOOST_INLINE void find_subtrees(const Split* splits, int64_t top, const Code* codes, int64_t rows, Code lowest_bit,
                                 bool is_lowest, Lanes<Code, kBytes>* number) {
  for (int64_t node = 0; node < int64_t{1} << top; ++node) {
    const int64_t slot = (int64_t{1} << top) - 1 + node;
    Lanes<Code, kBytes> found;
    if (is_lowest) {
      Subtree<kLevels, Code, kBytes>::find(splits, slot, codes, rows, lowest_bit, nullptr, found);
    } else {
      Subtree<kLevels, Code, kBytes>::find(splits, slot, codes, rows, lowest_bit, number + (node << kLevels), found);
    }
    number[node] = found;
  }
}

// A depthwise tree of numeric splits.
template <int kBytes, typename Code>
JBOOST_INLINE void find_by_comparing(const Split* splits, int64_t depth, const Code* codes, int64_t rows,
                                     Code* __restrict leaf) {
  using L = Lanes<Code, kBytes>;
  L number[1 << (kMostComparedLevels - 1)];
  for (int64_t first = 0; first < rows; first += L::kRows) {
    number[0] = L{};
    for (int64_t done = 0; done < depth;) {
      const int64_t levels = std::min(kTogether, depth - done), top = depth - done - levels;
      const Code lowest_bit = static_cast<Code>(1 << done);
      if (levels == 3) find_subtrees<3>(splits, top, codes + first, rows, lowest_bit, done == 0, number);
      if (levels == 2) find_subtrees<2>(splits, top, codes + first, rows, lowest_bit, done == 0, number);
      if (levels == 1) find_subtrees<1>(splits, top, codes + first, rows, lowest_bit, done == 0, number);
      done += levels;
    }
    std::memcpy(leaf + first, &number[0], sizeof(L));
  }
}

}  // namespace internal
}  // namespace jboost

#endif  // JBOOST_SCORING_LEAVES_H_
