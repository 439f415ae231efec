// Sums of two columns, and numbers of rows, by group in one pass: what kernel.h makes of each, in three.

#ifndef JBOOST_FIXED_POINT_MOMENTS_H_
#define JBOOST_FIXED_POINT_MOMENTS_H_

#include "kernel.h"

namespace jboost {

// Two columns of floats with the scales of their sums, and which rows are counted.
template <typename T>
struct Moments {
  const T *g, *h;          // [n]
  const bool* counted;     // [n]
  const int32_t* group;    // [n]
  int64_t n_rows, n_groups;
  const T* factors;        // [2], NaN for a column that is not finite
  const int32_t* n_terms;  // [2], how many values are not 0
};

namespace internal {

constexpr int64_t kRows = 512;  // whose words, of both columns, stay in the first-level cache

// words[word][i] = the limbs of value i, two to a word.
template <int kLimbs, typename T>
JBOOST_INLINE void split_column(const T* values, int64_t n, T scale, T step, int64_t* words) {
  for (int64_t i = 0; i < n; ++i) {
    T rest = scale == 0 ? T{0} : values[i] * scale;
    for (int limb = 0; limb < kLimbs; limb += 2) {
      const T first = std::nearbyint(rest);
      rest = (rest - first) * step;
      const T second = limb + 1 < kLimbs ? std::nearbyint(rest) : T{0};
      rest = (rest - second) * step;
      words[limb / 2 * n + i] = static_cast<int64_t>(static_cast<int32_t>(first)) * kHigh + static_cast<int32_t>(second);
    }
  }
}

// sums[copy][group] += the words of g, those of h, and 1 where the row is counted. The last group takes in rows of none.
template <int kLimbs, typename T>
JBOOST_INLINE void add_moments(const Moments<T>& m, int64_t first, int64_t n, const T* scale, const T* step, int64_t n_copies,
                               int64_t* words, int64_t* sums) {
  constexpr int64_t kWords = packed_words<kLimbs>, kNumbers = 2 * kWords + 1;
  split_column<kLimbs>(m.g + first, n, scale[0], step[0], words);
  split_column<kLimbs>(m.h + first, n, scale[1], step[1], words + kWords * n);
  const int32_t* const group = m.group + first;
  const bool* const counted = m.counted + first;
  const int64_t n_groups = m.n_groups, stride = (n_groups + 1) * kNumbers;
  const auto add = [=](int64_t i, int64_t copy) JBOOST_INLINE_LAMBDA {
    int64_t* const sum = sums + copy * stride + std::min<int64_t>(static_cast<uint32_t>(group[i]), n_groups) * kNumbers;
    for (int64_t word = 0; word < 2 * kWords; ++word) sum[word] += words[word * n + i];
    sum[2 * kWords] += counted[i];
  };
  int64_t i = 0;
  for (; i + n_copies <= n; i += n_copies)
    for (int64_t copy = 0; copy < n_copies; ++copy) add(i + copy, copy);
  for (; i < n; ++i) add(i, 0);
}

}  // namespace internal

#define JBOOST_DISPATCH(T, LIMBS)                                                                                         \
  JBOOST_CLONES static void add_moments(const Moments<T>& moments, int64_t first, int64_t n, const T* scale,             \
                                        const T* step, int64_t n_copies, int64_t* words, int64_t* sums) {                \
    if (n_copies == internal::kCopies)                                                                                    \
      return internal::add_moments<LIMBS, T>(moments, first, n, scale, step, internal::kCopies, words, sums);            \
    internal::add_moments<LIMBS, T>(moments, first, n, scale, step, n_copies, words, sums);                               \
  }
JBOOST_DISPATCH(float, 2)
JBOOST_DISPATCH(double, 3)
#undef JBOOST_DISPATCH

// The sums of g and of h, and the numbers of rows that are counted, each [groups].
template <typename T>
void sum_moments(const Pool& pool, const Moments<T>& m, T* sums_of_g, T* sums_of_h, int32_t* counts) {
  constexpr int64_t kLimbs = n_limbs<T>, kWords = internal::packed_words<kLimbs>, kNumbers = 2 * kWords + 1;
  T scale[2], step[2];
  int32_t bits[2];
  for (int column = 0; column < 2; ++column) {
    bits[column] = internal::bits_of_limb(m.n_terms[column]);
    scale[column] = std::isnan(m.factors[column]) ? T{0} : m.factors[column];
    step[column] = std::ldexp(T{1}, bits[column]);
  }
  const int64_t n_workers = pool.workers_for(2 * m.n_rows), stride = (m.n_groups + 1) * kNumbers;
  const int64_t n_copies = stride > internal::kManySums ? 1 : internal::kCopies;
  constexpr int64_t n_words = internal::kRows * 2 * kWords;
  std::vector<int64_t> sums(n_workers * n_copies * stride, 0), words(n_workers * n_words);
  Crew(pool, n_workers).run((m.n_rows + internal::kBlock - 1) / internal::kBlock, [&](int64_t block, int64_t worker) {
    const int64_t last = std::min((block + 1) * internal::kBlock, m.n_rows);
    for (int64_t first = block * internal::kBlock; first < last; first += internal::kRows)
      add_moments(m, first, std::min(internal::kRows, last - first), scale, step, n_copies, words.data() + worker * n_words,
                  sums.data() + worker * n_copies * stride);
  });
  for (int64_t j = 0; j < m.n_groups; ++j) {
    int64_t found[kNumbers] = {};
    for (int64_t copy = 0; copy < n_workers * n_copies; ++copy)
      for (int64_t number = 0; number < kNumbers; ++number) found[number] += sums[copy * stride + j * kNumbers + number];
    int32_t limbs[2 * kWords];
    for (int column = 0; column < 2; ++column) {
      for (int64_t word = 0; word < kWords; ++word) internal::unpack(found[column * kWords + word], limbs + 2 * word);
      (column ? sums_of_h : sums_of_g)[j] = internal::total_of<T, kLimbs>(limbs, bits[column], m.factors[column]);
    }
    counts[j] = static_cast<int32_t>(found[2 * kWords]);
  }
}

}  // namespace jboost

#endif  // JBOOST_FIXED_POINT_MOMENTS_H_
