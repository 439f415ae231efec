// The subsets of categories that are tried, as in categories.py, in its order of operations.

#ifndef JBOOST_SPLIT_CATEGORIES_H_
#define JBOOST_SPLIT_CATEGORIES_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "search.h"

namespace jboost {

// The codes of a categorical column in the order in which they are cut; codes that are absent are left out.
struct Order {
  int32_t* codes;  // room for all
  int64_t n_present;
  bool one_hot;  // each present code is tried against the rest instead, and so are missing values

  int64_t n_candidates() const { return n_present + one_hot; }
};

constexpr int32_t kAllOutputs = -1;      // together: the order is that of their sums
constexpr int64_t kOrderedOutputs = 4;  // at most, each with an order of its own: N_ORDERED of categories.py

// The output, or all together, by which the categories are sorted in turn.
struct OrderedBy {
  int32_t outputs[1 + kOrderedOutputs] = {kAllOutputs};
  int64_t n = 1;
};

// Chooses the outputs whose gradients differ most between codes, given the sums of each code, [code][c].
template <typename T>
OrderedBy ordered_by(const int32_t* sums, int64_t n_codes, const Rules<T>& rules, T smooth) {
  OrderedBy result;
  if (rules.n_pairs == 1) return result;
  std::vector<T> spread(rules.n_pairs);
  for (int64_t q = 0; q < rules.n_pairs; ++q) {
    T memory[64];
    PairwiseSum<T> sum(memory, 1);
    for (int64_t code = 0; code < n_codes; ++code) {
      const int32_t* of_pair = sums + code * rules.n_statistics() + 2 * q;
      const T g = of_pair[0] * rules.scale[2 * q], h = of_pair[1] * rules.scale[2 * q + 1];
      *sum.next() = code > 0 ? internal::score<T>(g, h, smooth, T{0}) : T{0};
      sum.push();
    }
    spread[q] = *sum.result();
  }
  while (result.n < 1 + std::min(rules.n_pairs, kOrderedOutputs)) {
    const auto most = std::max_element(spread.begin(), spread.end());  // the first of equals
    result.outputs[result.n++] = static_cast<int32_t>(most - spread.begin());
    *most = -std::numeric_limits<T>::infinity();
  }
  return result;
}

// Sorts the codes by G / (H + smooth) of an output, or of all, given the sums of each code, [code][c]. `keys` has room
// for n_codes.
template <typename T>
void order_categories(const int32_t* sums, int64_t n_codes, const Rules<T>& rules, T smooth, int64_t max_to_onehot,
                      int32_t by_output, T* keys, Order* order) {
  const int64_t n_statistics = rules.n_statistics();
  T memory[2][64];
  order->n_present = 0;
  for (int64_t code = 1; code < n_codes; ++code) {
    const int32_t* of_code = sums + code * n_statistics;
    PairwiseSum<T> g(memory[0], 1), h(memory[1], 1);
    for (int64_t q = 0; q < rules.n_pairs; ++q) {
      *g.next() = of_code[2 * q] * rules.scale[2 * q];
      *h.next() = of_code[2 * q + 1] * rules.scale[2 * q + 1];
      g.push();
      h.push();
    }
    if (!(*h.result() > 0)) continue;
    T slope = *g.result(), denominator = *h.result() + smooth;
    if (by_output != kAllOutputs) {
      const int32_t* of_pair = of_code + 2 * by_output;
      slope = of_pair[0] * rules.scale[2 * by_output];
      denominator = of_pair[1] * rules.scale[2 * by_output + 1] + smooth;
    }
    keys[code] = denominator > 0 ? slope / denominator : T{0};
    order->codes[order->n_present++] = static_cast<int32_t>(code);
  }
  order->one_hot = order->n_present <= max_to_onehot;
  if (!order->one_hot)
    std::stable_sort(order->codes, order->codes + order->n_present,
                     [keys](int32_t a, int32_t b) { return keys[a] < keys[b]; });
}

// Writes what goes left by each candidate, [c][stride], and returns how many there are, given the sums of each code as
// words of two statistics.
inline int64_t category_candidates(const uint64_t* cells, const Order& order, const int32_t* total, int64_t n_words,
                                   int64_t n_statistics, int32_t* left, int64_t stride) {
  for (int64_t p = 0; p < n_words; ++p) {
    int32_t* const first = left + 2 * p * stride;
    int32_t* const second = 2 * p + 1 < n_statistics ? first + stride : nullptr;
    uint64_t sum = cells[p];  // of the missing values
    for (int64_t rank = 0; rank < order.n_present; ++rank) {
      const uint64_t here = cells[order.codes[rank] * n_words + p];
      sum += here;
      first[rank] = order.one_hot ? total[2 * p] - high(here) : high(sum);
      if (second) second[rank] = order.one_hot ? total[2 * p + 1] - low(here) : low(sum);
    }
    if (!order.one_hot) continue;
    first[order.n_present] = total[2 * p];
    if (second) second[order.n_present] = total[2 * p + 1];
  }
  return order.n_candidates();
}

// Whether the code at a rank goes right by the cut at a position.
inline bool goes_right(const Order& order, int64_t rank, int64_t position) {
  return order.one_hot ? rank == position : rank > position;
}

}  // namespace jboost

#endif  // JBOOST_SPLIT_CATEGORIES_H_
