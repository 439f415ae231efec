// The search for the best split of one feature; plain C++17, so that it can be tested without XLA.
//
// The arithmetic is that of formulas.py, operation by operation, on whole vectors of candidates. Scales are powers of
// two, so that no fused multiplication could round otherwise, and floats are added in the order of `sum_in_pairs`:
// both give the same bits. Build with -ffp-contract=off.

#ifndef JBOOST_SPLIT_SEARCH_H_
#define JBOOST_SPLIT_SEARCH_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "../_histogram/tables.h"
#include "../_runtime/simd.h"

namespace jboost {

constexpr int64_t kLanes = 32;  // candidates that are tried together: a vector or two of each quantity

inline int64_t whole_lanes(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

template <typename T>
struct Rules {
  T reg_lambda, reg_alpha, gamma, min_child_weight;
  const T* scale;             // [c]
  int64_t n_pairs;            // of g and h; a count of rows may follow them
  int32_t min_child_samples;  // 0: rows are not counted
  bool has_missing;

  int64_t n_statistics() const { return 2 * n_pairs + (min_child_samples > 0); }
};

// The candidates of one node and feature: what goes left, [c][stride], the c totals and what is missing.
struct Candidates {
  const int32_t* left;
  const int32_t* total;
  const int32_t* missing;
  int64_t n, stride;  // the stride is a multiple of kLanes
};

namespace internal {

template <typename T>
JBOOST_INLINE T soft_threshold(T g, T alpha) {
  const T raised = g < -alpha ? -alpha : g;
  return g - (raised > alpha ? alpha : raised);
}

template <typename T>
JBOOST_INLINE T score(T g, T h, T lambda, T alpha) {
  const T denominator = h + lambda, left = soft_threshold(g, alpha);
  const bool usable = denominator > 0;
  const T quotient = left * left / (usable ? denominator : T{1});
  return usable ? quotient : T{0};
}

// Adds the vector at `from` to a running sum over pairs, which needs no memory while there is one pair.
template <typename T>
struct PairSums {
  static constexpr int64_t kDepth = 34;
  T vectors[kDepth][kLanes];
  int64_t depth = 0, n = 0;

  JBOOST_INLINE T* next() { return vectors[depth]; }
  JBOOST_INLINE void push() {
    ++depth;
    for (int64_t count = ++n; count % 2 == 0; count /= 2) merge();
  }
  JBOOST_INLINE const T* result() {
    while (depth > 1) merge();
    return vectors[0];
  }
  JBOOST_INLINE void merge() {
    for (int64_t j = 0; j < kLanes; ++j) vectors[depth - 2][j] += vectors[depth - 1][j];
    --depth;
  }
};

template <typename T>
T parent_score(const int32_t* total, const Rules<T>& rules) {
  PairSums<T> sum;  // one lane of it
  for (int64_t q = 0; q < rules.n_pairs; ++q) {
    sum.next()[0] = score<T>(total[2 * q] * rules.scale[2 * q], total[2 * q + 1] * rules.scale[2 * q + 1],
                             rules.reg_lambda, rules.reg_alpha);
    for (int64_t j = 1; j < kLanes; ++j) sum.next()[j] = 0;
    sum.push();
  }
  return sum.result()[0];
}

// gain[j] of the candidates first + j: equation (7) of XGBoost, `floor` where inadmissible or lower.
template <bool kOnePair, typename T>
JBOOST_INLINE void evaluate(const Candidates& c, int64_t first, int32_t side, T parent, const Rules<T>& rules, T floor,
                            T* gain) {
  const T infinity = std::numeric_limits<T>::infinity(), noise = 4 * std::numeric_limits<T>::epsilon();
  const T lambda = rules.reg_lambda, alpha = rules.reg_alpha, gamma = rules.gamma, least = rules.min_child_weight;
  T h_left[kLanes], h_right[kLanes], one_left[kLanes], one_right[kLanes];
  PairSums<T>* sums = nullptr;
  PairSums<T> many[kOnePair ? 1 : 2];
  if (!kOnePair) {
    sums = many;
    for (int64_t j = 0; j < kLanes; ++j) h_left[j] = h_right[j] = -infinity;
  }
  for (int64_t q = 0; q < (kOnePair ? 1 : rules.n_pairs); ++q) {
    const int32_t* all_g = c.left + 2 * q * c.stride + first;
    const int32_t* all_h = all_g + c.stride;
    const T scale_g = rules.scale[2 * q], scale_h = rules.scale[2 * q + 1];
    const int32_t total_g = c.total[2 * q], total_h = c.total[2 * q + 1];
    const int32_t missing_g = side * c.missing[2 * q], missing_h = side * c.missing[2 * q + 1];
    T* on_left = kOnePair ? one_left : sums[0].next();
    T* on_right = kOnePair ? one_right : sums[1].next();
    for (int64_t j = 0; j < kLanes; ++j) {
      const int32_t g = all_g[j] - missing_g, h = all_h[j] - missing_h;
      const T real_h_left = h * scale_h, real_h_right = (total_h - h) * scale_h;
      on_left[j] = score<T>(g * scale_g, real_h_left, lambda, alpha);
      on_right[j] = score<T>((total_g - g) * scale_g, real_h_right, lambda, alpha);
      h_left[j] = kOnePair || h_left[j] < real_h_left ? real_h_left : h_left[j];
      h_right[j] = kOnePair || h_right[j] < real_h_right ? real_h_right : h_right[j];
    }
    if (!kOnePair) {
      sums[0].push();
      sums[1].push();
    }
  }
  const T* on_left = kOnePair ? one_left : sums[0].result();
  const T* on_right = kOnePair ? one_right : sums[1].result();
  for (int64_t j = 0; j < kLanes; ++j) {
    const T children = on_left[j] + on_right[j], half = T(0.5) * (children - parent);
    const bool enough = (h_left[j] > 0) & (h_left[j] >= least) & (h_right[j] > 0) & (h_right[j] >= least);
    const T more = half - gamma;
    gain[j] = (half > noise * children) & enough & (more > floor) ? more : floor;
  }
  if (rules.min_child_samples > 0) {
    const int64_t last = 2 * rules.n_pairs;
    const int32_t* all_rows = c.left + last * c.stride + first;
    for (int64_t j = 0; j < kLanes; ++j) {
      const int32_t rows = all_rows[j] - side * c.missing[last];
      const bool enough = (rows >= rules.min_child_samples) & (c.total[last] - rows >= rules.min_child_samples);
      gain[j] = enough ? gain[j] : floor;
    }
  }
}

template <bool kOnePair, typename T>
JBOOST_INLINE void all_gains(const Candidates& c, const Rules<T>& rules, T floor, T* gains) {
  const T parent = parent_score(c.total, rules);
  for (int64_t first = 0; first < c.n; first += kLanes)
    for (int32_t side = 0; side <= (rules.has_missing ? 1 : 0); ++side)
      evaluate<kOnePair>(c, first, side, parent, rules, floor, gains + side * whole_lanes(c.n) + first);
}

template <typename T>
JBOOST_INLINE void gains_of(const Candidates& c, const Rules<T>& rules, T floor, T* gains) {
  if (rules.n_pairs == 1)
    all_gains<true>(c, rules, floor, gains);
  else
    all_gains<false>(c, rules, floor, gains);
}

template <typename T>
JBOOST_INLINE void add_to(T* into, const T* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) into[i] += from[i];
}

// The best of n gains, the first of equals; candidates count 2 * position + side.
template <typename T>
JBOOST_INLINE void first_best(const T* gains, int64_t n, bool has_missing, T* best, int32_t* candidate) {
  T most[kLanes];
  int32_t where[kLanes];
  for (int64_t j = 0; j < kLanes; ++j) most[j] = -std::numeric_limits<T>::infinity(), where[j] = 0;
  for (int64_t first = 0; first < n; first += kLanes) {
    const int32_t count = static_cast<int32_t>(std::min(kLanes, n - first));
    for (int32_t side = 0; side <= (has_missing ? 1 : 0); ++side) {
      const T* gain = gains + side * whole_lanes(n) + first;
      const int32_t from = static_cast<int32_t>(2 * first) + side;
      for (int32_t j = 0; j < kLanes; ++j) {
        const bool wins = (gain[j] > most[j]) & (j < count);
        most[j] = wins ? gain[j] : most[j];
        where[j] = wins ? from + 2 * j : where[j];
      }
    }
  }
  *best = most[0];
  *candidate = where[0];
  for (int64_t j = 1; j < kLanes; ++j) {
    if (most[j] > *best || (most[j] == *best && where[j] < *candidate)) *best = most[j], *candidate = where[j];
  }
}

}  // namespace internal

// Writes the running sums of n words, in four runs that do not wait for each other.
JBOOST_INLINE void running_words(const uint64_t* cells, int64_t n, int64_t step, uint64_t* sums) {
  const int64_t quarter = n / 4;
  uint64_t a = 0, b = 0, c = 0, d = 0;
  for (int64_t i = 0; i < quarter; ++i) {
    sums[i] = a += cells[i * step];
    sums[quarter + i] = b += cells[(quarter + i) * step];
    sums[2 * quarter + i] = c += cells[(2 * quarter + i) * step];
    sums[3 * quarter + i] = d += cells[(3 * quarter + i) * step];
  }
  for (int64_t i = 4 * quarter; i < n; ++i) sums[i] = d += cells[i * step];
  for (int64_t i = quarter; i < 2 * quarter; ++i) sums[i] += a;
  for (int64_t i = 2 * quarter; i < 3 * quarter; ++i) sums[i] += a + b;
  for (int64_t i = 3 * quarter; i < n; ++i) sums[i] += a + b + c;
}

// Sums the words of n codes one after the other, and writes the sums of each as statistics [c][stride].
JBOOST_CLONES static void running_sums(const uint64_t* cells, int64_t n, int64_t n_words, int64_t n_statistics,
                                       uint64_t* memory, int32_t* sums, int64_t stride) {
  for (int64_t p = 0; p < n_words; ++p) {
    n_words == 1 ? running_words(cells, n, 1, memory) : running_words(cells + p, n, n_words, memory);
    int32_t* first = sums + 2 * p * stride;
    for (int64_t code = 0; code < n; ++code) first[code] = high(memory[code]);
    if (2 * p + 1 < n_statistics)
      for (int64_t code = 0; code < n; ++code) first[stride + code] = low(memory[code]);
  }
}

// The sibling's words: those of the parent less these.
JBOOST_CLONES static void subtract(uint64_t* parent, const uint64_t* words, int64_t n) {
  for (int64_t i = 0; i < n; ++i) parent[i] -= words[i];
}

// Writes the gain of each candidate, but nothing below `floor`: one side or, with missing values, two, each of
// whole_lanes(n). What lies beyond the candidates is `floor` if nothing is left for the right there.
JBOOST_CLONES static void candidate_gains(const Candidates& c, const Rules<float>& rules, float floor, float* gains) {
  internal::gains_of(c, rules, floor, gains);
}
JBOOST_CLONES static void candidate_gains(const Candidates& c, const Rules<double>& rules, double floor, double* gains) {
  internal::gains_of(c, rules, floor, gains);
}

// Finds the best of n candidates of one node, or of the sum of gains over nodes.
JBOOST_CLONES static void best_candidate(const float* gains, int64_t n, bool has_missing, float* best, int32_t* candidate) {
  internal::first_best(gains, n, has_missing, best, candidate);
}
JBOOST_CLONES static void best_candidate(const double* gains, int64_t n, bool has_missing, double* best, int32_t* candidate) {
  internal::first_best(gains, n, has_missing, best, candidate);
}

JBOOST_CLONES static void add_to(float* into, const float* from, int64_t n) { internal::add_to(into, from, n); }
JBOOST_CLONES static void add_to(double* into, const double* from, int64_t n) { internal::add_to(into, from, n); }

// Adds vectors in the order of `sum_in_pairs`: neighbours first, then neighbouring sums.
template <typename T>
class PairwiseSum {
 public:
  // `memory` holds room(n) vectors of the given size.
  PairwiseSum(T* memory, int64_t size) : memory_(memory), size_(size) {}
  static int64_t room(int64_t n) {
    int64_t levels = 2;
    while (n > 1) n = (n + 1) / 2, ++levels;
    return levels;
  }
  // Where the next vector is to be written, before `push`.
  T* next() { return memory_ + depth_ * size_; }
  void push() {
    ++depth_;
    for (int64_t count = ++n_; count % 2 == 0; count /= 2) merge();
  }
  // The sum of all; there must be one at least.
  const T* result() {
    while (depth_ > 1) merge();
    return memory_;
  }

 private:
  void merge() {
    T* into = memory_ + (depth_ - 2) * size_;
    const T* from = into + size_;
    add_to(into, from, size_);
    --depth_;
  }
  T* memory_;
  int64_t size_, depth_ = 0, n_ = 0;
};

}  // namespace jboost

#endif  // JBOOST_SPLIT_SEARCH_H_
