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
  int32_t by_output = kAllOutputs;  // of which the categories were sorted
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
    const int64_t n_found = p_.symmetric ? 1 : n_nodes;
    for (int64_t i = 0; i < n_found; ++i) {
      found[i] = {};
      const int64_t last = p_.symmetric ? n_nodes : i + 1;
      if (!p_.symmetric && !tables_.has(i)) continue;
      if (!p_.is_categorical(feature))
        improve(feature, i, last, nullptr, &found[i]);
      else
        search_orders(feature, i, last, &found[i]);
      if (p_.symmetric && !(found->gain > 0)) *found = {T{0}, 0};
    }
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
  Order order_of(int64_t feature, int64_t first_node, int64_t last_node, int32_t by_output) {
    sum_categories(feature, first_node, last_node);
    return sorted(by_output);
  }

 private:
  static int64_t most_nodes(const Growth<T>& p) { return int64_t{1} << p.depth >> 1; }
  int64_t sides() const { return p_.rules.has_missing ? 2 : 1; }

  // The order of the categories that were summed; valid until the next call.
  Order sorted(int32_t by_output) {
    Order order{codes_, 0, false};
    order_categories(cells_, p_.n_category_codes, p_.rules, p_.cat_smooth, p_.max_cat_to_onehot, by_output, keys_,
                     &order);
    return order;
  }
  // Tries the categories of the nodes [first, last) in each order, unless each is tried against the rest.
  void search_orders(int64_t feature, int64_t first_node, int64_t last_node, Found<T>* found) {
    sum_categories(feature, first_node, last_node);
    const OrderedBy by = ordered_by(cells_, p_.n_category_codes, p_.rules, p_.cat_smooth);
    for (int64_t i = 0; i < by.n; ++i) {
      const Order order = sorted(by.outputs[i]);
      if (improve(feature, first_node, last_node, &order, found)) found->by_output = by.outputs[i];
      if (order.one_hot) break;
    }
  }
  // Says whether a candidate gains more than what was found, in a node or in all together, and keeps the best.
  bool improve(int64_t feature, int64_t first_node, int64_t last_node, const Order* order, Found<T>* found) {
    Found<T> best;
    if (p_.symmetric) {
      const int64_t n = order ? order->n_candidates() : p_.n_codes - 1, size = sides() * whole_lanes(n);
      PairwiseSum<T> together(together_, size);
      for (int64_t node = first_node; node < last_node; ++node, together.push())
        if (tables_.has(node))
          write_gains(feature, node, order, T{0}, together.next());
        else
          std::fill(together.next(), together.next() + size, T{0});
      best_candidate(together.result(), n, p_.rules.has_missing, &best.gain, &best.candidate);
    } else {
      const int64_t n = write_gains(feature, first_node, order, found->gain, gains_);
      best_candidate(gains_, n, p_.rules.has_missing, &best.gain, &best.candidate);
    }
    if (!(best.gain > found->gain)) return false;
    *found = best;
    return true;
  }

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
    const uint64_t* cells = cells_of(feature, node);
    const int64_t n_words = tables_.shape.n_words;
    int32_t* missing = total_ + n_statistics_;
    int64_t n = p_.n_codes - 1;
    if (order) {
      write_total(cells);
      n = category_candidates(cells, *order, total_, n_words, n_statistics_, left_, stride_);
    } else {
      running_sums(cells, p_.n_codes, n_words, n_statistics_, sums_, left_, stride_);
      for (int64_t c = 0; c < n_statistics_; ++c) {
        total_[c] = left_[c * stride_ + p_.n_codes - 1];
        missing[c] = left_[c * stride_];
      }
    }
    for (int64_t c = 0; c < n_statistics_; ++c)  // whole vectors are read: nothing is left for the right
      std::fill(left_ + c * stride_ + n, left_ + c * stride_ + whole_lanes(n), total_[c]);
    candidate_gains(Candidates{left_, total_, missing, n, stride_}, p_.rules, floor, gains);
    return n;
  }

  // Sums the words of all codes to total_, and writes those of the missing values behind it.
  void write_total(const uint64_t* cells) {
    const int64_t n_words = tables_.shape.n_words;
    std::fill(sums_, sums_ + n_words, 0);
    for (int64_t code = 0; code < p_.n_codes; ++code)
      for (int64_t p = 0; p < n_words; ++p) sums_[p] += cells[code * n_words + p];
    for (int64_t c = 0; c < n_statistics_; ++c) {
      total_[c] = c % 2 ? low(sums_[c / 2]) : high(sums_[c / 2]);
      total_[n_statistics_ + c] = c % 2 ? low(cells[c / 2]) : high(cells[c / 2]);
    }
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
