// The threshold search of thresholds.py for the cores of a CPU; plain C++17, so that it can be tested without XLA.
//
// One pass over the bin codes keeps a running sum of what goes left, for a few columns at a time, and the best
// candidate so far. The arithmetic is that of thresholds.py, operation by operation: scales are powers of two, so that
// no fused multiplication could round otherwise, and both give the same bits. Build with -ffp-contract=off.

#ifndef JBOOST_SPLIT_SEARCH_H_
#define JBOOST_SPLIT_SEARCH_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace jboost {

template <typename T>
struct Search {
  const int32_t* histogram;  // [b, c, l, f]
  const T* scale;            // [c]
  const T* hyper;            // reg_lambda, reg_alpha, gamma, min_child_weight
  T* gain;                   // [l, f], or [1, f] if symmetric
  int32_t* candidate;        // as gain: 2 * position + 1 if missing values go right
  int64_t n_codes, n_statistics, n_nodes, n_features;
  bool symmetric, has_missing;
  int32_t min_child_samples;  // 0: rows are not counted
};

namespace internal {

constexpr int64_t kMostColumns = 32;  // searched together: a vector or two of each quantity

template <typename T>
inline T soft_threshold(T g, T alpha) {
  const T raised = g < -alpha ? -alpha : g;
  return g - (raised > alpha ? alpha : raised);
}

template <typename T>
inline T score(T g, T h, T lambda, T alpha) {
  const T denominator = h + lambda, left = soft_threshold(g, alpha);
  const bool usable = denominator > 0;
  const T quotient = left * left / (usable ? denominator : T{1});
  return usable ? quotient : T{0};
}

// Searches the columns [first, first + n), n <= kColumns. `memory` holds 2 c l kColumns words.
template <int64_t kColumns, typename T>
inline __attribute__((always_inline)) void search_columns(const Search<T>& p, int64_t first, int64_t n,
                                                          int32_t* memory) {
  const T lambda = p.hyper[0], alpha = p.hyper[1], gamma = p.hyper[2], least = p.hyper[3];
  const T infinity = std::numeric_limits<T>::infinity(), noise = 4 * std::numeric_limits<T>::epsilon();
  const int64_t n_pairs = p.n_statistics / 2, n_sums = p.n_statistics * p.n_nodes;
  const int64_t n_found = p.symmetric ? 1 : p.n_nodes;
  int32_t* left = memory;
  int32_t* missing = left + n_sums * kColumns;

  std::vector<int32_t> total(n_sums, 0);
  std::vector<T> parent(p.n_nodes, 0), best(n_found * kColumns, -infinity);
  std::vector<int32_t> where(n_found * kColumns, 0);
  for (int64_t code = 0; code < p.n_codes; ++code)
    for (int64_t s = 0; s < n_sums; ++s) total[s] += p.histogram[(code * n_sums + s) * p.n_features];
  for (int64_t node = 0; node < p.n_nodes; ++node)
    for (int64_t q = 0; q < n_pairs; ++q)
      parent[node] += score<T>(total[2 * q * p.n_nodes + node] * p.scale[2 * q],
                               total[(2 * q + 1) * p.n_nodes + node] * p.scale[2 * q + 1], lambda, alpha);
  for (int64_t s = 0; s < n_sums; ++s)
    for (int64_t j = 0; j < kColumns; ++j) {
      left[s * kColumns + j] = 0;
      missing[s * kColumns + j] = j < n ? p.histogram[s * p.n_features + first + j] : 0;
    }

  for (int64_t code = 0; code + 1 < p.n_codes; ++code) {
    int32_t any = 0;
    for (int64_t s = 0; s < n_sums; ++s) {
      const int32_t* here = p.histogram + (code * n_sums + s) * p.n_features + first;
      for (int64_t j = 0; j < n; ++j) {
        left[s * kColumns + j] += here[j];
        any |= here[j];
      }
    }
    if (!any) continue;  // the candidate is the one before
    for (int32_t side = 0; side <= (p.has_missing ? 1 : 0); ++side) {
      const int32_t candidate = static_cast<int32_t>(2 * code) + side;
      T together[kColumns] = {};
      for (int64_t node = 0; node < p.n_nodes; ++node) {
        T on_left[kColumns] = {}, on_right[kColumns] = {}, h_left[kColumns], h_right[kColumns];
        for (int64_t j = 0; j < kColumns; ++j) h_left[j] = h_right[j] = -infinity;
        for (int64_t q = 0; q < n_pairs; ++q) {
          const int64_t at_g = 2 * q * p.n_nodes + node, at_h = at_g + p.n_nodes;
          const T scale_g = p.scale[2 * q], scale_h = p.scale[2 * q + 1];
          const int32_t total_g = total[at_g], total_h = total[at_h];
          for (int64_t j = 0; j < kColumns; ++j) {
            const int32_t g = left[at_g * kColumns + j] - side * missing[at_g * kColumns + j];
            const int32_t h = left[at_h * kColumns + j] - side * missing[at_h * kColumns + j];
            const T real_h_left = h * scale_h, real_h_right = (total_h - h) * scale_h;
            on_left[j] += score<T>(g * scale_g, real_h_left, lambda, alpha);
            on_right[j] += score<T>((total_g - g) * scale_g, real_h_right, lambda, alpha);
            h_left[j] = h_left[j] < real_h_left ? real_h_left : h_left[j];
            h_right[j] = h_right[j] < real_h_right ? real_h_right : h_right[j];
          }
        }
        T gain[kColumns];
        for (int64_t j = 0; j < kColumns; ++j) {
          const T children = on_left[j] + on_right[j], half = T(0.5) * (children - parent[node]);
          const bool enough = (h_left[j] > 0) & (h_left[j] >= least) & (h_right[j] > 0) & (h_right[j] >= least);
          gain[j] = (half > noise * children) & enough ? half - gamma : -infinity;
        }
        if (p.min_child_samples > 0) {
          const int64_t at = (p.n_statistics - 1) * p.n_nodes + node;
          for (int64_t j = 0; j < kColumns; ++j) {
            const int32_t rows = left[at * kColumns + j] - side * missing[at * kColumns + j];
            const bool enough = (rows >= p.min_child_samples) & (total[at] - rows >= p.min_child_samples);
            gain[j] = enough ? gain[j] : -infinity;
          }
        }
        if (p.symmetric) {
          for (int64_t j = 0; j < kColumns; ++j) together[j] += gain[j] > 0 ? gain[j] : T{0};
        } else {
          for (int64_t j = 0; j < kColumns; ++j) {
            const bool wins = gain[j] > best[node * kColumns + j];
            best[node * kColumns + j] = wins ? gain[j] : best[node * kColumns + j];
            where[node * kColumns + j] = wins ? candidate : where[node * kColumns + j];
          }
        }
      }
      if (p.symmetric)
        for (int64_t j = 0; j < kColumns; ++j) {
          const bool wins = together[j] > best[j];
          best[j] = wins ? together[j] : best[j];
          where[j] = wins ? candidate : where[j];
        }
    }
  }
  for (int64_t found = 0; found < n_found; ++found)
    for (int64_t j = 0; j < n; ++j) {
      const int64_t to = found * p.n_features + first + j, from = found * kColumns + j;
      p.gain[to] = best[from];
      p.candidate[to] = where[from];
    }
}

}  // namespace internal
}  // namespace jboost

#endif  // JBOOST_SPLIT_SEARCH_H_
