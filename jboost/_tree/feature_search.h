// The best split of one feature, for each node of a level or for all of them together.

#ifndef JBOOST_TREE_FEATURE_SEARCH_H_
#define JBOOST_TREE_FEATURE_SEARCH_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "../_split/categories.h"
#include "../_split/search.h"
#include "growth.h"
#include "node_tables.h"
#include "passing_table.h"

namespace jboost {

template <typename T>
struct Found {
  T gain = -std::numeric_limits<T>::infinity();
  int32_t candidate = 0;
};

// The searches of one worker, in memory of its own.
template <typename T>
class FeatureSearch {
 public:
  static int64_t words_needed(const Growth<T>& p) {
    const int64_t stride = whole_lanes(p.n_codes), c = p.rules.n_statistics();
    const int64_t gains = 2 * stride * (1 + PairwiseSum<T>::room(most_nodes(p))) + stride;
    const int64_t integers = (c + 1) * stride + 2 * c, own = p.bundles.any() ? p.n_codes * ((c + 1) / 2) : 0;
    return stride * (1 + c) + own + (gains * static_cast<int64_t>(sizeof(T)) + integers * 4) / 8 + kLine;
  }

  // The tables are read from `passing`, or from `tables` if that is null; `is_shared` says of which features they are
  // those of a bundle.
  FeatureSearch(const Growth<T>& p, const NodeTables& tables, PassingTable* passing,
                const std::vector<bool>& is_shared, uint64_t* memory)
      : p_(p), tables_(tables), passing_(passing), is_shared_(is_shared), n_statistics_(p.rules.n_statistics()),
        stride_(whole_lanes(p.n_codes)) {
    own_ = memory;
    sums_ = memory + (p.bundles.any() ? p.n_codes * tables.shape.n_words : 0);
    cells_ = reinterpret_cast<int32_t*>(sums_ + stride_);
    gains_ = reinterpret_cast<T*>(sums_ + stride_ * (1 + n_statistics_));
    keys_ = gains_ + 2 * stride_;
    together_ = keys_ + stride_;
    left_ = reinterpret_cast<int32_t*>(together_ + 2 * stride_ * PairwiseSum<T>::room(most_nodes(p)));
    codes_ = left_ + n_statistics_ * stride_;
    total_ = codes_ + stride_;
  }

  // Writes what is best in each node, or in the first place what is best for all under symmetric growth.
  void search(int64_t feature, int64_t n_nodes, Found<T>* found) {
    const bool by_category = p_.is_categorical(feature);
    Order order{};
    if (by_category && p_.symmetric) order = order_of(feature, 0, n_nodes);
    const int64_t n = by_category ? order.n_candidates() : p_.n_codes - 1;  // known so early only if the same for all
    PairwiseSum<T> together(together_, sides() * whole_lanes(n));
    for (int64_t node = 0; node < n_nodes; ++node) {
      found[node] = {};
      const bool is_empty = !tables_.has(node);
      if (p_.symmetric) {
        if (is_empty)
          std::fill(together.next(), together.next() + sides() * whole_lanes(n), T{0});
        else
          write_gains(feature, node, by_category ? &order : nullptr, T{0}, together.next());
        together.push();
      } else if (!is_empty) {
        if (by_category) order = order_of(feature, node, node + 1);
        const int64_t n_here = write_gains(feature, node, by_category ? &order : nullptr, found[node].gain, gains_);
        best_candidate(gains_, n_here, p_.rules.has_missing, &found[node].gain, &found[node].candidate);
      }
    }
    if (!p_.symmetric) return;
    best_candidate(together.result(), n, p_.rules.has_missing, &found->gain, &found->candidate);
    if (!(found->gain > 0)) *found = {T{0}, 0};
  }

  // The sums of a node by code, valid until another is asked for.
  const uint64_t* cells_of(int64_t feature, int64_t node) {
    const int64_t column = p_.column_of(feature);
    const uint64_t* cells = passing_ ? passing_->of(column, node) : tables_.of_feature(column, node);
    if (!p_.bundles.any() || !is_shared_[feature]) return cells;
    p_.bundles.sum_out(feature, p_.n_codes, tables_.shape.n_words, cells, own_);
    return own_;
  }

  // The order in which the categories of the nodes [first, last) are cut; valid until the next call.
  Order order_of(int64_t feature, int64_t first_node, int64_t last_node) {
    sum_categories(feature, first_node, last_node);
    Order order{codes_, 0, false};
    order_categories(cells_, p_.n_category_codes, p_.rules, p_.cat_smooth, p_.max_cat_to_onehot, keys_, &order);
    return order;
  }

 private:
  static int64_t most_nodes(const Growth<T>& p) { return int64_t{1} << p.depth >> 1; }
  int64_t sides() const { return p_.rules.has_missing ? 2 : 1; }

  // cells_ = the nodes' sums of each category, [code][c].
  void sum_categories(int64_t feature, int64_t first_node, int64_t last_node) {
    std::fill(cells_, cells_ + p_.n_category_codes * n_statistics_, 0);
    for (int64_t node = first_node; node < last_node; ++node) {
      if (!tables_.has(node)) continue;
      const uint64_t* cells = cells_of(feature, node);
      for (int64_t code = 0; code < p_.n_category_codes; ++code)
        for (int64_t c = 0; c < n_statistics_; ++c) {
          const uint64_t word = cells[code * tables_.shape.n_words + c / 2];
          cells_[code * n_statistics_ + c] += c % 2 ? low(word) : high(word);
        }
    }
  }

  // Writes the gains of a node's candidates, none below the floor, and returns how many there are.
  int64_t write_gains(int64_t feature, int64_t node, const Order* order, T floor, T* gains) {
    running_sums(cells_of(feature, node), p_.n_codes, tables_.shape.n_words, n_statistics_, sums_, left_,
                 stride_);
    int32_t* missing = total_ + n_statistics_;
    for (int64_t c = 0; c < n_statistics_; ++c) {
      total_[c] = left_[c * stride_ + p_.n_codes - 1];
      missing[c] = left_[c * stride_];
    }
    int64_t n = p_.n_codes - 1;
    if (order) {
      sum_categories(feature, node, node + 1);
      n = category_candidates(cells_, *order, total_, missing, n_statistics_, left_, stride_);
    }
    for (int64_t c = 0; c < n_statistics_; ++c)  // whole vectors are read: nothing is left for the right
      std::fill(left_ + c * stride_ + n, left_ + c * stride_ + whole_lanes(n), total_[c]);
    candidate_gains(Candidates{left_, total_, missing, n, stride_}, p_.rules, floor, gains);
    return n;
  }

  const Growth<T>& p_;
  const NodeTables& tables_;
  PassingTable* const passing_;
  const std::vector<bool>& is_shared_;
  const int64_t n_statistics_, stride_;
  uint64_t *own_, *sums_;
  int32_t *cells_, *left_, *codes_, *total_;
  T *gains_, *keys_, *together_;
};

}  // namespace jboost

#endif  // JBOOST_TREE_FEATURE_SEARCH_H_
