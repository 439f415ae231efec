// The subsets of categories that are tried, as in categories.py, in its order of operations.

#ifndef JBOOST_SPLIT_CATEGORIES_H_
#define JBOOST_SPLIT_CATEGORIES_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "search.h"

namespace jboost {

// The codes of a categorical column in the order in which they are cut; codes that are absent are left out.
struct Order {
  int32_t* codes;  // room for all
  int64_t n_present;
  bool one_hot;  // each present code is tried against the rest instead, and so are missing values

  int64_t n_candidates() const { return n_present + one_hot; }
};

// Sorts the codes by G / (H + smooth), given the sums of each code, [code][c]. `keys` has room for n_codes.
template <typename T>
void order_categories(const int32_t* sums, int64_t n_codes, const Rules<T>& rules, T smooth, int64_t max_to_onehot,
                      T* keys, Order* order) {
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
    keys[code] = *g.result() / (*h.result() + smooth);
    order->codes[order->n_present++] = static_cast<int32_t>(code);
  }
  order->one_hot = order->n_present <= max_to_onehot;
  if (!order->one_hot)
    std::stable_sort(order->codes, order->codes + order->n_present,
                     [keys](int32_t a, int32_t b) { return keys[a] < keys[b]; });
}

// Writes what goes left by each candidate, [c][stride], and returns how many candidates there are.
inline int64_t category_candidates(const int32_t* cells, const Order& order, const int32_t* total,
                                   const int32_t* missing, int64_t n_statistics, int32_t* left, int64_t stride) {
  for (int64_t c = 0; c < n_statistics; ++c) {
    int32_t sum = missing[c];
    for (int64_t rank = 0; rank < order.n_present; ++rank) {
      const int32_t here = cells[order.codes[rank] * n_statistics + c];
      sum += here;
      left[c * stride + rank] = order.one_hot ? total[c] - here : sum;
    }
    if (order.one_hot) left[c * stride + order.n_present] = total[c];
  }
  return order.n_candidates();
}

// Whether the code at a rank goes right by the cut at a position.
inline bool goes_right(const Order& order, int64_t rank, int64_t position) {
  return order.one_hot ? rank == position : rank > position;
}

}  // namespace jboost

#endif  // JBOOST_SPLIT_CATEGORIES_H_
