// Bin codes of float columns, exactly those of host.py; plain C++17.
//
// A code is 1 + (number of edges < value), 0 for NaN. Floats are ordered as the integers of their bits are, once negative
// ones are turned around: a few leading bits of that integer tell how many edges lie surely below, and a search among
// the few edges with the same leading bits tells the rest.

#ifndef JBOOST_BINS_CODES_H_
#define JBOOST_BINS_CODES_H_

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "../_runtime/simd.h"

namespace jboost {

template <typename T, typename Code>
struct Binning {
  const T* values;                      // value of row i and feature j: values[i * row_step + j * feature_step]
  int64_t row_step, feature_step;
  const T* edges;                       // [f, e], each row increasing and padded with infinity
  Code* codes;                          // [f, n]
  int64_t n_rows, n_features, n_edges;  // n, f, e
};

namespace internal {

constexpr int64_t kRowsTogether = 1024;    // values and counts stay in the first-level cache
constexpr int64_t kMostBuckets = 4096;
constexpr int64_t kRowsForBuckets = 8192;  // fewer are searched for without: a table costs as much as it saves

template <typename T>
using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

template <typename T>
JBOOST_INLINE Bits<T> ordered_bits(T value) {
  constexpr int kSign = 8 * sizeof(T) - 1;
  Bits<T> bits;
  std::memcpy(&bits, &value, sizeof(T));
  return bits ^ ((Bits<T>{0} - (bits >> kSign)) | Bits<T>{1} << kSign);
}

// How the values of one feature are searched for.
template <typename T>
struct Searcher {
  std::vector<T> edges;         // finite or -infinity, then as much infinity as the search may look at
  std::vector<int32_t> below;   // for each bucket of leading bits, the edges in buckets before
  Bits<T> lowest = 0;           // the leading bits of the first bucket
  int32_t shift = 8 * sizeof(T) - 1;
  int32_t first_step = 0;       // of the search within a bucket, a power of two; 0 where no edges are

  JBOOST_INLINE int32_t bucket(T value) const { return bucket(value, lowest, shift, static_cast<int32_t>(below.size()) - 1); }
  static JBOOST_INLINE int32_t bucket(T value, Bits<T> lowest, int32_t shift, int32_t last) {
    const Bits<T> leading = ordered_bits(value) >> shift;
    const Bits<T> distance = leading < lowest ? 0 : leading - lowest;
    return static_cast<int32_t>(distance > static_cast<Bits<T>>(last) ? static_cast<Bits<T>>(last) : distance);
  }

  Searcher(const T* row, int64_t n_edges, bool with_buckets) : below(1, 0) {
    for (int64_t i = 0; i < n_edges && row[i] < std::numeric_limits<T>::infinity(); ++i)
      edges.push_back(row[i] + T{0});  // -0.0 and 0.0 are equal, and have to be in one bucket
    const int64_t n = static_cast<int64_t>(edges.size());
    int64_t fullest = n;
    if (with_buckets && n > 1) fullest = make_buckets();
    first_step = fullest > 0 ? 1 : 0;
    while (first_step > 0 && 2 * first_step <= fullest) first_step *= 2;
    edges.resize(n + 2 * first_step + 1, std::numeric_limits<T>::infinity());
  }

  int64_t make_buckets() {
    const Bits<T> low = ordered_bits(edges.front()), high = ordered_bits(edges.back());
    for (shift = 0; ((high >> shift) - (low >> shift)) >= static_cast<Bits<T>>(kMostBuckets);) ++shift;
    lowest = low >> shift;
    below.assign((high >> shift) - lowest + 1, 0);
    std::vector<int32_t> held(below.size(), 0);
    for (const T edge : edges) ++held[bucket(edge)];
    for (size_t i = 1; i < below.size(); ++i) below[i] = below[i - 1] + held[i - 1];
    return *std::max_element(held.begin(), held.end());
  }
};

// Codes of n consecutive rows of one feature.
template <typename T, typename Code>
JBOOST_INLINE void bin_some(const Searcher<T>& searcher, const T* values, int64_t step, int64_t n, Code* codes) {
  T value[kRowsTogether];
  int32_t count[kRowsTogether];
  const int32_t* below = searcher.below.data();
  const T* edges = searcher.edges.data();
  const Bits<T> lowest = searcher.lowest;
  const int32_t shift = searcher.shift, last = static_cast<int32_t>(searcher.below.size()) - 1;
  for (int64_t i = 0; i < n; ++i) value[i] = values[i * step];
  for (int64_t i = 0; i < n; ++i) count[i] = Searcher<T>::bucket(value[i], lowest, shift, last);
  for (int64_t i = 0; i < n; ++i) count[i] = below[count[i]];
  for (int32_t s = searcher.first_step; s > 0; s /= 2) {
    const T* probe = edges + s - 1;
    for (int64_t i = 0; i < n; ++i) count[i] += -static_cast<int32_t>(probe[count[i]] < value[i]) & s;
  }
  for (int64_t i = 0; i < n; ++i) codes[i] = static_cast<Code>(-static_cast<int32_t>(value[i] == value[i]) & (count[i] + 1));
}

#define JBOOST_BIN_SOME(T, Code)                                                                          \
  JBOOST_CLONES inline void bin_part(const Searcher<T>& searcher, const T* values, int64_t step, int64_t n, \
                                     Code* codes) {                                                       \
    bin_some(searcher, values, step, n, codes);                                                           \
  }
JBOOST_BIN_SOME(float, uint8_t)
JBOOST_BIN_SOME(float, uint16_t)
JBOOST_BIN_SOME(double, uint8_t)
JBOOST_BIN_SOME(double, uint16_t)
#undef JBOOST_BIN_SOME

}  // namespace internal

// Bins all values. Rows come in blocks, so that a matrix that is stored row by row is read once.
template <typename T, typename Code, typename InParallel>
void bin_values(const Binning<T, Code>& p, const InParallel& in_parallel) {
  using internal::kRowsTogether;
  std::vector<internal::Searcher<T>> searchers;
  for (int64_t j = 0; j < p.n_features; ++j)
    searchers.emplace_back(p.edges + j * p.n_edges, p.n_edges, p.n_rows >= internal::kRowsForBuckets);
  const int64_t n_blocks = (p.n_rows + kRowsTogether - 1) / kRowsTogether;
  std::atomic<int64_t> next{0};
  in_parallel([&] {
    for (int64_t block; (block = next++) < n_blocks;) {
      const int64_t first = block * kRowsTogether, n = std::min(kRowsTogether, p.n_rows - first);
      for (int64_t j = 0; j < p.n_features; ++j)
        internal::bin_part(searchers[j], p.values + first * p.row_step + j * p.feature_step, p.row_step, n,
                           p.codes + j * p.n_rows + first);
    }
  });
}

}  // namespace jboost

#endif  // JBOOST_BINS_CODES_H_
