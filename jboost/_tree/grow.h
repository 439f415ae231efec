// A tree grown in one call on the cores of a CPU: what levels.py does level by level, with the same result, bit for
// bit. Plain C++17, so that it can be tested without XLA.
//
// Rows are kept in the order of their nodes, so only the rows of the lighter children are looked at, each node's table
// lies in the cache while they are added, and the other child is the parent less its sibling, in place.

#ifndef JBOOST_TREE_GROW_H_
#define JBOOST_TREE_GROW_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "../_histogram/joint.h"
#include "../_histogram/tables.h"
#include "../scratch.h"
#include "../_split/categories.h"
#include "../_split/search.h"
#include "rows.h"

namespace jboost {

template <typename T>
struct Growth {
  GroupedBins grouped;
  const T *g, *h;             // [n, k]
  const bool* active;         // [n]
  const bool* allowed;        // [d, f]
  Rules<T> rules;
  T cat_smooth;
  const int32_t* categorical;  // columns, ascending
  int64_t n_categorical, n_category_codes, max_cat_to_onehot;
  int64_t n_codes, depth;
  bool symmetric;
  int64_t joint_rows = kJointRows;  // from which on a node has joint tables, for each part

  int32_t* feature;  // of every slot: a level, or a node
  int32_t* threshold;
  bool* missing_right;
  uint32_t* categories_right;  // [slots, words]
  int64_t n_set_words;
  T* gain;
  int32_t* leaf;  // [n]

  int64_t n_rows() const { return grouped.n_rows; }
  int64_t n_features() const { return grouped.n_features; }
};

namespace internal {

constexpr int64_t kNoTable = -1;

inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

template <typename T>
class Grower {
 public:
  Grower(const Growth<T>& p, const Pool& pool)
      : p_(p),
        n_statistics_(p.rules.n_statistics()),
        factor_(factors(p.rules)),
        shape_(p.n_codes, n_statistics_, p.grouped.width, p.grouped.wide),
        n_workers_(pool.workers_for(p.n_rows() * p.n_features() * (1 + p.depth / 2) +
                                    p.n_features() * p.n_codes * (int64_t{1} << p.depth))),
        max_nodes_(int64_t{1} << p.depth),
        n_parts_(parts()),
        n_joint_(is_worth_joint(p.n_rows()) && can_be_joint(p.grouped, shape_, p.n_codes) ? kJointNodes : 0),
        rows_(p.n_rows(), block_rows(), shape_.n_words, max_nodes_),
        stride_(whole_lanes(p.n_codes)),
        found_(p.n_features() * max_nodes_ / 2),
        tables_(max_nodes_ / 2, kNoTable),
        routes_(max_nodes_ / 2),
        crew_(pool, n_workers_) {
    const int64_t persistent = p.grouped.n_groups() * group_words();
    const int64_t words = rows_.words_needed() + n_parts_ * persistent + n_workers_ * worker_words() +
                          (max_nodes_ / 2 * (p.n_codes + 1) + 7) / 8;
    uint64_t* memory = scratch_.get(words);
    rows_.use(memory);
    cells_ = memory + rows_.words_needed();
    worker_memory_ = cells_ + n_parts_ * persistent;
    sets_ = reinterpret_cast<uint8_t*>(worker_memory_ + n_workers_ * worker_words());
  }

  void grow() {
    const Derivatives<T> derivatives{p_.g, p_.h, factor_.data(), p_.rules.n_pairs, n_statistics_ % 2 == 1};
    crew_.run(rows_.n_blocks, [&](int64_t block, int64_t) {
      rows_.pack(block, derivatives);
      rows_.start(block, p_.active);
      rows_.collect_values(block, 0);
    });
    tables_[0] = n_tables_++;
    built_ = {{0, kNoTable, n_joint_ ? 0 : kNoTable}};
    for (int64_t level = 0; level < p_.depth; ++level) {
      n_nodes_ = int64_t{1} << level;
      build();
      crew_.run(p_.n_features(), [&](int64_t feature, int64_t worker) {
        finish_tables(feature);
        search(feature, worker);
      });
      choose(level);
      if (level + 1 < p_.depth) descend();
    }
    crew_.run(rows_.n_blocks, [&](int64_t block, int64_t) { write_leaves(block); });
  }

 private:
  struct Found {
    T gain;
    int32_t candidate;
  };
  struct Built {
    int64_t node, sibling;  // the sibling holds the table of their parent; kNoTable if there is none
    int64_t joint;          // number of its joint tables; kNoTable if it has none
  };

  static std::vector<T> factors(const Rules<T>& rules) {
    std::vector<T> result(2 * rules.n_pairs);
    for (size_t i = 0; i < result.size(); ++i) result[i] = rules.scale[i] > 0 ? 1 / rules.scale[i] : T{0};  // not NaN
    return result;
  }

  // ---------------------------------------------------------------------------------------------- sizes
  int64_t parts() const {  // of the rows, where there are fewer groups of features than workers
    const int64_t groups = p_.grouped.n_groups();
    const int64_t wanted = (n_workers_ + groups - 1) / std::max<int64_t>(groups, 1);
    return std::max<int64_t>(1, std::min(wanted, p_.n_rows() / std::max<int64_t>(p_.n_codes, 1)));
  }
  int64_t block_rows() const {
    // In the second-level cache, with enough blocks to share out and enough rows for each node.
    const int64_t most = int64_t{32768} << std::max<int64_t>(0, p_.depth - 6);
    const int64_t share = round_up(p_.n_rows() / (4 * n_workers_) + 1, 64);
    return std::max<int64_t>(1, std::min({p_.n_rows(), most, std::max<int64_t>(share, 2048)}));
  }
  int64_t group_words() const { return shape_.words_for(max_nodes_ / 2); }
  int64_t worker_words() const {
    const int64_t gains = 2 * stride_ * (1 + PairwiseSum<T>::room(max_nodes_ / 2)) + stride_;
    const int64_t integers = (n_statistics_ + 1) * stride_ + 2 * n_statistics_;
    return stride_ * (1 + n_statistics_) + (gains * static_cast<int64_t>(sizeof(T)) + integers * 4) / 8 + kLine +
           n_joint_ * kJointWords;
  }
  bool is_worth_joint(int64_t rows) const { return rows >= p_.joint_rows * n_parts_; }
  uint64_t* table(int64_t part, int64_t group, int64_t slot) {
    return cells_ + (part * p_.grouped.n_groups() + group) * group_words() + slot * shape_.slot_words;
  }
  uint64_t* table_of(int64_t part, int64_t feature, int64_t slot) {
    return table(part, feature / p_.grouped.width, slot) + feature % p_.grouped.width * shape_.feature_words;
  }

  // ---------------------------------------------------------------------------------------------- histograms
  void build() {
    const int64_t groups = p_.grouped.n_groups();
    crew_.run(groups * n_parts_, [&](int64_t unit, int64_t worker) {
      const int64_t group = unit % groups, part = unit / groups;
      for (const Built& one : built_) {
        std::memset(table(part, group, tables_[one.node]), 0, shape_.slot_words * sizeof(uint64_t));
        if (one.joint != kNoTable) std::memset(joint(worker, one.joint), 0, kJointWords * sizeof(uint64_t));
      }
      const int64_t last = rows_.n_blocks * (part + 1) / n_parts_;
      for (int64_t block = rows_.n_blocks * part / n_parts_; block < last; ++block)
        for (const Built& one : built_)
          add_block(block, one, group, table(part, group, tables_[one.node]), joint(worker, one.joint));
      for (const Built& one : built_)
        if (one.joint != kNoTable)
          add_marginals(joint(worker, one.joint), p_.grouped.features_of(group), p_.n_codes,
                        table(part, group, tables_[one.node]), shape_);
    });
  }
  uint64_t* joint(int64_t worker, int64_t number) {  // at the end of the worker's memory
    if (number == kNoTable) return nullptr;
    return worker_memory_ + (worker + 1) * worker_words() - (number + 1) * kJointWords;
  }
  void add_block(int64_t block, const Built& one, int64_t group, uint64_t* cells, uint64_t* joint) {
    const int64_t n = rows_.count(block, one.node), first = rows_.first_row(block);
    const uint32_t* rows = rows_.has_all(block, one.node) ? nullptr : rows_.rows(block, one.node);
    const uint64_t* values = rows_.values(block, one.node);
    if (joint)
      add_joint_rows(p_.grouped, group, first, rows, n, values, joint, cells, shape_);
    else
      add_rows(p_.grouped, group, first, rows, n, values, cells, shape_, p_.n_codes);
  }
  // Sums the parts of what was built, and subtracts it from the parent's table, which becomes the sibling's.
  void finish_tables(int64_t feature) {
    const int64_t words = p_.n_codes * shape_.n_words;
    for (const Built& one : built_) {
      uint64_t* cells = table_of(0, feature, tables_[one.node]);
      for (int64_t part = 1; part < n_parts_; ++part) {
        const uint64_t* more = table_of(part, feature, tables_[one.node]);
        for (int64_t i = 0; i < words; ++i) cells[i] += more[i];
      }
      if (one.sibling == kNoTable) continue;
      uint64_t* parent = table_of(0, feature, tables_[one.sibling]);
      subtract(parent, cells, words);
    }
  }

  // ---------------------------------------------------------------------------------------------- search
  int64_t sides() const { return p_.rules.has_missing ? 2 : 1; }
  bool is_categorical(int64_t feature) const {
    return std::binary_search(p_.categorical, p_.categorical + p_.n_categorical, static_cast<int32_t>(feature));
  }
  struct Memory {  // of a worker
    int32_t *left, *total, *codes;
    uint64_t* sums;
    int32_t* cells;
    T *gains, *keys, *together;
  };
  Memory memory_of(int64_t worker) {
    uint64_t* words = worker_memory_ + worker * worker_words();
    Memory m;
    m.sums = words;
    words += stride_;
    m.cells = reinterpret_cast<int32_t*>(words);
    words += stride_ * n_statistics_;
    m.gains = reinterpret_cast<T*>(words);
    m.keys = m.gains + 2 * stride_;
    m.together = m.keys + stride_;
    T* end = m.together + 2 * stride_ * PairwiseSum<T>::room(max_nodes_ / 2);
    m.left = reinterpret_cast<int32_t*>(end);
    m.codes = m.left + n_statistics_ * stride_;
    m.total = m.codes + stride_;
    return m;
  }

  // Adds the nodes' sums of each category, [code][c].
  void sum_categories(int64_t feature, int64_t first_node, int64_t last_node, int32_t* sums) {
    std::fill(sums, sums + p_.n_category_codes * n_statistics_, 0);
    for (int64_t node = first_node; node < last_node; ++node) {
      if (tables_[node] == kNoTable) continue;
      const uint64_t* cells = table_of(0, feature, tables_[node]);
      for (int64_t code = 0; code < p_.n_category_codes; ++code)
        for (int64_t c = 0; c < n_statistics_; ++c) {
          const uint64_t word = cells[code * shape_.n_words + c / 2];
          sums[code * n_statistics_ + c] += c % 2 ? low(word) : high(word);
        }
    }
  }
  Order order_of(int64_t feature, int64_t first_node, int64_t last_node, const Memory& m) {
    sum_categories(feature, first_node, last_node, m.cells);
    Order order{m.codes, 0, false};
    order_categories(m.cells, p_.n_category_codes, p_.rules, p_.cat_smooth, p_.max_cat_to_onehot, m.keys, &order);
    return order;
  }

  void search(int64_t feature, int64_t worker) {
    const Memory m = memory_of(worker);
    const bool by_category = is_categorical(feature);
    Order order{};
    if (by_category && p_.symmetric) order = order_of(feature, 0, n_nodes_, m);
    const int64_t n = by_category ? order.n_candidates() : p_.n_codes - 1;  // known so early only if it is the same for all
    PairwiseSum<T> together(m.together, sides() * whole_lanes(n));
    for (int64_t node = 0; node < n_nodes_; ++node) {
      Found& found = found_[feature * n_nodes_ + node];
      found = {-std::numeric_limits<T>::infinity(), 0};
      const bool is_empty = tables_[node] == kNoTable;
      if (p_.symmetric) {
        if (is_empty)
          std::fill(together.next(), together.next() + sides() * whole_lanes(n), T{0});
        else
          write_gains(feature, node, by_category ? &order : nullptr, m, T{0}, together.next());
        together.push();
      } else if (!is_empty) {
        if (by_category) order = order_of(feature, node, node + 1, m);
        const int64_t n_here = write_gains(feature, node, by_category ? &order : nullptr, m, found.gain, m.gains);
        best_candidate(m.gains, n_here, p_.rules.has_missing, &found.gain, &found.candidate);
      }
    }
    if (!p_.symmetric) return;
    Found& found = found_[feature * n_nodes_];
    best_candidate(together.result(), n, p_.rules.has_missing, &found.gain, &found.candidate);
    if (!(found.gain > 0)) found = {T{0}, 0};
  }
  // Writes the gains of a node's candidates, none below the floor, and returns how many there are.
  int64_t write_gains(int64_t feature, int64_t node, const Order* order, const Memory& m, T floor, T* gains) {
    running_sums(table_of(0, feature, tables_[node]), p_.n_codes, shape_.n_words, n_statistics_, m.sums, m.left,
                 stride_);
    int32_t* missing = m.total + n_statistics_;
    for (int64_t c = 0; c < n_statistics_; ++c) {
      m.total[c] = m.left[c * stride_ + p_.n_codes - 1];
      missing[c] = m.left[c * stride_];
    }
    int64_t n = p_.n_codes - 1;
    if (order) {
      sum_categories(feature, node, node + 1, m.cells);
      n = category_candidates(m.cells, *order, m.total, missing, n_statistics_, m.left, stride_);
    }
    for (int64_t c = 0; c < n_statistics_; ++c)  // whole vectors are read: nothing is left for the right
      std::fill(m.left + c * stride_ + n, m.left + c * stride_ + whole_lanes(n), m.total[c]);
    candidate_gains(Candidates{m.left, m.total, missing, n, stride_}, p_.rules, floor, gains);
    return n;
  }

  // ---------------------------------------------------------------------------------------------- splits
  void choose(int64_t level) {
    const int64_t n_found = p_.symmetric ? 1 : n_nodes_, first_slot = p_.symmetric ? level : n_nodes_ - 1;
    lighter_right_.assign(n_nodes_, 0);
    for (int64_t i = 0; i < n_found; ++i) {
      const bool* allowed = p_.allowed + level * p_.n_features();
      int64_t feature = 0;
      Found best{-std::numeric_limits<T>::infinity(), 0};
      for (int64_t f = 0; f < p_.n_features(); ++f) {
        const Found& found = found_[f * n_nodes_ + i];
        if (allowed[f] && found.gain > best.gain) best = found, feature = f;
      }
      settle(i, p_.symmetric ? n_nodes_ : i + 1, first_slot + i, feature, best);
    }
  }
  // Writes the split of the nodes [first, last) to its slot, and finds which of their right children are the lighter.
  void settle(int64_t first, int64_t last, int64_t slot, int64_t feature, const Found& best) {
    const bool is_split = best.gain > 0;
    const int32_t position = best.candidate / 2;
    const Memory m = memory_of(0);
    uint8_t* right = sets_ + first * (p_.n_codes + 1);
    const int64_t threshold = is_split ? position : p_.n_codes;
    const bool by_category = is_split && is_categorical(feature);
    for (int64_t code = 0; code <= p_.n_codes; ++code) right[code] = code > 0 && code > threshold && !by_category;
    right[p_.n_codes] = 0;
    std::vector<uint8_t> present;
    if (by_category) {
      const Order order = order_of(feature, first, last, m);
      present.assign(p_.n_codes, 0);
      for (int64_t rank = 0; rank < order.n_present; ++rank) {
        right[order.codes[rank]] = goes_right(order, rank, position);
        present[order.codes[rank]] = 1;
      }
    }
    const bool missing_right = is_split && weigh(first, last, feature, right, best.candidate % 2 == 1);
    right[0] = missing_right && by_category;
    if (by_category)
      for (int64_t code = 1; code < p_.n_codes; ++code)
        if (!present[code]) right[code] = missing_right;
    p_.feature[slot] = static_cast<int32_t>(feature);
    p_.threshold[slot] = static_cast<int32_t>(threshold);
    p_.missing_right[slot] = missing_right;
    p_.gain[slot] = is_split ? best.gain : T{0};
    for (int64_t word = 0; word < p_.n_set_words; ++word) {
      uint32_t bits = 0;
      for (int64_t bit = 0; bit < 32 && 32 * word + bit < p_.n_codes; ++bit)
        bits |= uint32_t{right[32 * word + bit]} << bit;
      p_.categories_right[slot * p_.n_set_words + word] = bits;
    }
    for (int64_t node = first; node < last; ++node)
      routes_[node] = {static_cast<int32_t>(feature), static_cast<int32_t>(threshold), missing_right,
                       by_category ? right : nullptr};
  }
  // Says where missing values go, those that were not there with the heavier child, and notes the lighter children.
  bool weigh(int64_t first, int64_t last, int64_t feature, const uint8_t* right, bool missing_right) {
    const int64_t n_words = shape_.n_words, n_pairs = p_.rules.n_pairs;
    std::vector<int32_t> excess((last - first) * n_pairs, 0), missing((last - first) * n_pairs, 0);
    std::vector<int32_t> excess_of_all(n_pairs, 0), all_missing(n_pairs, 0);
    for (int64_t node = first; node < last; ++node) {
      if (tables_[node] == kNoTable) continue;
      const uint64_t* cells = table_of(0, feature, tables_[node]);
      for (int64_t q = 0; q < n_pairs; ++q) {
        int32_t& sum = excess[(node - first) * n_pairs + q];
        for (int64_t code = 1; code < p_.n_codes; ++code) {
          const int32_t h = low(cells[code * n_words + q]);
          sum += right[code] ? h : -h;
        }
        missing[(node - first) * n_pairs + q] = low(cells[q]);
        excess_of_all[q] += sum;
        all_missing[q] += low(cells[q]);
      }
    }
    if (!(in_real_units(all_missing.data()) > 0)) missing_right = in_real_units(excess_of_all.data()) > 0;
    for (int64_t node = first; node < last; ++node) {
      const T absent = in_real_units(missing.data() + (node - first) * n_pairs);
      const T known = in_real_units(excess.data() + (node - first) * n_pairs);
      lighter_right_[node] = known + (missing_right ? absent : -absent) < 0;
    }
    return missing_right;
  }
  T in_real_units(const int32_t* hessians) const {
    T memory[64];
    PairwiseSum<T> sum(memory, 1);
    for (int64_t q = 0; q < p_.rules.n_pairs; ++q) {
      *sum.next() = hessians[q] * p_.rules.scale[2 * q + 1];
      sum.push();
    }
    return *sum.result();
  }

  // ---------------------------------------------------------------------------------------------- rows
  bool is_split(int64_t node) const { return routes_[node].threshold < p_.n_codes; }
  template <typename Work>
  void with_codes(int64_t feature, const Work& work) const {
    const GroupedBins& bins = p_.grouped;
    const int64_t first = feature / bins.width * bins.n_rows * bins.width + feature % bins.width;
    if (bins.wide)
      work(Column<uint16_t>{static_cast<const uint16_t*>(bins.codes) + first, bins.width});
    else
      work(Column<uint8_t>{static_cast<const uint8_t*>(bins.codes) + first, bins.width});
  }

  // Sends the rows to the children, and says which tables are to be built: those of the lighter ones.
  void descend() {
    std::vector<std::atomic<int64_t>> n_built(n_nodes_);
    crew_.run(rows_.n_blocks, [&](int64_t block, int64_t) {
      NodeRows next = rows_.next();
      for (int64_t node = 0; node < n_nodes_; ++node) {
        if (!is_split(node) || tables_[node] == kNoTable) {
          rows_.keep_left(block, node);
          continue;
        }
        const Route& route = routes_[node];
        with_codes(route.feature, [&](const auto& codes) {
          rows_.split(block, node, codes, route, static_cast<uint32_t>(p_.n_codes));
        });
        const int64_t built = 2 * node + lighter_right_[node];
        next.collect_values(block, built);
        n_built[node] += next.count(block, built);
      }
    });
    rows_.advance();
    std::vector<int64_t> tables(2 * n_nodes_, kNoTable);
    int64_t n_joint = 0;
    built_.clear();
    for (int64_t node = 0; node < n_nodes_; ++node) {
      if (tables_[node] == kNoTable) continue;
      const int64_t built = 2 * node + lighter_right_[node], other = 4 * node + 1 - built;
      if (n_built[node] == 0) {
        tables[is_split(node) ? other : 2 * node] = tables_[node];
        continue;
      }
      tables[other] = tables_[node];
      tables[built] = n_tables_++;
      const bool is_joint = n_joint < n_joint_ && is_worth_joint(n_built[node]);
      built_.push_back({built, other, is_joint ? n_joint++ : kNoTable});
    }
    tables_ = std::move(tables);
  }

  // The nodes of the last level are current: their rows go one level further, and rows that are not active all the way.
  void write_leaves(int64_t block) {
    int32_t* leaf = p_.leaf + rows_.first_row(block);
    for (int64_t node = 0; node < n_nodes_; ++node) {
      const uint32_t* rows = rows_.rows(block, node);
      const int64_t n = rows_.count(block, node);
      if (!n) continue;
      with_codes(routes_[node].feature, [&](const auto& codes) {
        const auto of_block = codes.from(rows_.first_row(block));
        with_test(routes_[node], static_cast<uint32_t>(p_.n_codes), [&](const auto& goes_right) {
          for (int64_t i = 0; i < n; ++i)
            leaf[rows[i]] = static_cast<int32_t>(2 * node + goes_right(of_block[rows[i]]));
        });
      });
    }
    const bool* active = p_.active + rows_.first_row(block);
    for (int64_t i = 0; i < rows_.rows_of(block); ++i)
      if (!active[i]) leaf[i] = leaf_of(rows_.first_row(block) + i);
  }
  int32_t leaf_of(int64_t row) const {
    int32_t node = 0;
    for (int64_t level = 0; level < p_.depth; ++level) {
      const int64_t slot = p_.symmetric ? level : (int64_t{1} << level) - 1 + node;
      int32_t code = 0;
      with_codes(p_.feature[slot], [&](const auto& codes) { code = codes[row]; });
      node = 2 * node + slot_goes_right(slot, code);
    }
    return node;
  }
  bool slot_goes_right(int64_t slot, int32_t code) const {
    if (code == 0) return p_.missing_right[slot];
    if (p_.threshold[slot] < p_.n_codes && is_categorical(p_.feature[slot]))
      return code < p_.n_codes && p_.categories_right[slot * p_.n_set_words + code / 32] >> (code % 32) & 1;
    return code > p_.threshold[slot];
  }

  const Growth<T>& p_;
  const int64_t n_statistics_;
  const std::vector<T> factor_;
  const TableShape shape_;
  const int64_t n_workers_, max_nodes_, n_parts_, n_joint_;
  NodeRows rows_;
  const int64_t stride_;
  std::vector<Found> found_;  // [f][nodes]
  std::vector<int64_t> tables_;
  std::vector<Route> routes_;
  std::vector<uint8_t> lighter_right_;
  std::vector<Built> built_;
  int64_t n_nodes_ = 1, n_tables_ = 0;
  uint64_t *cells_ = nullptr, *worker_memory_ = nullptr;
  uint8_t* sets_ = nullptr;
  Scratch scratch_;
  Crew crew_;
};

}  // namespace internal

// Grows one tree. Throws std::bad_alloc.
template <typename T>
void grow_tree(const Growth<T>& growth, const Pool& pool) {
  internal::Grower<T>(growth, pool).grow();
}

}  // namespace jboost

#endif  // JBOOST_TREE_GROW_H_
