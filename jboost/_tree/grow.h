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
#include <type_traits>
#include <utility>
#include <vector>

#include "../_histogram/joint.h"
#include "../_histogram/tables.h"
#include "../_split/categories.h"
#include "../_runtime/parallel.h"
#include "../_runtime/scratch.h"
#include "feature_search.h"
#include "growth.h"
#include "node_tables.h"
#include "passing_table.h"
#include "routing.h"
#include "rows.h"

namespace jboost {

namespace internal {

inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

template <typename T>
class Grower {
 public:
  Grower(const Growth<T>& p, const Pool& pool)
      : p_(p),
        n_statistics_(p.rules.n_statistics()),
        factor_(factors(p.rules)),
        n_cells_(p.n_cells()),
        is_shared_(p.bundles.are_shared(p.n_codes)),
        n_workers_(pool.workers_for(p.n_rows() * p.grouped.n_features * (1 + p.depth / 2) +
                                    p.n_features() * p.n_codes * (int64_t{1} << p.depth))),
        max_nodes_(int64_t{1} << p.depth),
        tables_(p.grouped, TableShape(n_cells_, n_statistics_, p.grouped.width, p.grouped.wide), parts(), max_nodes_ / 2),
        passes_(are_passing()),
        n_joint_(may_be_joint() ? kJointNodes : 0),
        rows_(p.n_rows(), block_rows(), tables_.shape.n_words, max_nodes_, !passes_, n_workers_),
        found_(p.n_features() * max_nodes_ / 2),
        routes_(max_nodes_ / 2),
        crew_(pool, n_workers_) {
    const int64_t search_words = FeatureSearch<T>::words_needed(p), joint_words = n_joint_ * kJointWords;
    const int64_t kept_words = passes_ ? 0 : tables_.words_needed();
    const int64_t passing_words = passes_ ? PassingTable::words_needed(tables_.shape) : 0;
    uint64_t* memory = scratch_.get(rows_.words_needed() + kept_words +
                                    n_workers_ * (search_words + passing_words + joint_words) +
                                    (max_nodes_ / 2 * set_size() + 7) / 8,
                                    rows_.words_needed());
    rows_.use(memory);
    memory += rows_.words_needed();
    tables_.use(memory);
    memory += kept_words;
    passing_.reserve(n_workers_);  // they stay where they are
    for (int64_t worker = 0; worker < n_workers_; ++worker, memory += search_words + passing_words) {
      passing_.emplace_back(p.grouped, rows_, tables_.shape, n_cells_, memory + search_words);
      searches_.emplace_back(p, tables_, passes_ ? &passing_[worker] : nullptr, is_shared_, memory);
    }
    joint_memory_ = memory;
    sets_ = reinterpret_cast<uint8_t*>(memory + n_workers_ * joint_words);
  }

  void grow() {
    const Derivatives<T> derivatives{p_.g, p_.h, factor_.data(), p_.rules.n_pairs, n_statistics_ % 2 == 1};
    crew_.run(rows_.n_blocks, [&](int64_t block, int64_t) {
      rows_.pack(block, derivatives);
      rows_.start(block, p_.active);
      rows_.collect_values(block, 0);
    });
    tables_.set({tables_.new_slot()});
    built_ = {{0, kNone, n_joint_ ? 0 : kNone}};
    for (int64_t level = 0; level < p_.depth; ++level) {
      n_nodes_ = int64_t{1} << level;
      if (!passes_) build();
      for (PassingTable& table : passing_) table.forget();
      if (!passes_ && p_.bundles.any())  // several features read one column's
        crew_.run(p_.grouped.n_features, [&](int64_t column, int64_t) { finish_tables(column); });
      crew_.run(p_.n_features(), [&](int64_t feature, int64_t worker) {
        if (!passes_ && !p_.bundles.any()) finish_tables(feature);
        searches_[worker].search(feature, n_nodes_, &found_[feature * n_nodes_]);
      });
      choose(level);
      if (level + 1 < p_.depth) descend();
    }
    crew_.run(rows_.n_blocks, [&](int64_t block, int64_t) { write_leaves(block); });
    p_.grouped.wide ? write_other_leaves<uint16_t>() : write_other_leaves<uint8_t>();
  }

 private:
  static constexpr int64_t kNone = NodeTables::kNone;
  static constexpr int64_t kManyWords = 8;  // of a cell: enough to add them feature by feature
  struct Built {
    int64_t node, sibling;  // the sibling holds the table of their parent; kNone if there is none
    int64_t joint;          // number of its joint tables; kNone if it has none
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
    return std::max<int64_t>(1, std::min(wanted, p_.n_rows() / std::max<int64_t>(n_cells_, 1)));
  }
  int64_t block_rows() const {
    // In the second-level cache, with enough blocks to share out and enough rows for each node.
    const int64_t most = p_.depth > 6 ? kMaxBlockRows : kMaxBlockRows / 2;
    const int64_t share = round_up(p_.n_rows() / (4 * n_workers_) + 1, 64);
    return std::max<int64_t>(1, std::min({p_.n_rows(), most, std::max<int64_t>(share, 2048)}));
  }
  // Whether tables are made when they are read: where to keep them takes much memory, and what that spares, half of the
  // rows' additions below the root, is no more than the subtractions and their passes through memory.
  bool are_passing() const {
    const int64_t kept = tables_.words_needed() * static_cast<int64_t>(sizeof(uint64_t));
    return kept > p_.kept_bytes && tables_.shape.n_words >= kManyWords &&
           p_.n_rows() * (p_.depth - 1) <= 2 * n_cells_ * max_nodes_;
  }
  bool may_be_joint() const {
    return !passes_ && is_worth_joint(p_.n_rows()) && can_be_joint(p_.grouped, tables_.shape, n_cells_);
  }
  bool is_worth_joint(int64_t rows) const { return rows >= p_.joint_rows * tables_.n_parts; }

  // ---------------------------------------------------------------------------------------------- histograms
  void build() {
    const int64_t groups = p_.grouped.n_groups(), n_parts = tables_.n_parts;
    crew_.run(groups * n_parts, [&](int64_t unit, int64_t worker) {
      const int64_t group = unit % groups, part = unit / groups;
      for (const Built& one : built_) {
        std::memset(tables_.of_group(group, one.node, part), 0, tables_.shape.slot_words * sizeof(uint64_t));
        if (one.joint != kNone) std::memset(joint(worker, one), 0, kJointWords * sizeof(uint64_t));
      }
      const int64_t last = rows_.n_blocks * (part + 1) / n_parts;
      for (int64_t block = rows_.n_blocks * part / n_parts; block < last; ++block)
        for (const Built& one : built_)
          add_block(block, one, group, tables_.of_group(group, one.node, part), joint(worker, one));
      for (const Built& one : built_)
        if (one.joint != kNone)
          add_marginals(joint(worker, one), p_.grouped.features_of(group), n_cells_,
                        tables_.of_group(group, one.node, part), tables_.shape);
    });
  }
  uint64_t* joint(int64_t worker, const Built& one) const {
    return one.joint == kNone ? nullptr : joint_memory_ + (worker * n_joint_ + one.joint) * kJointWords;
  }
  void add_block(int64_t block, const Built& one, int64_t group, uint64_t* cells, uint64_t* joint) {
    const int64_t n = rows_.count(block, one.node), first = rows_.first_row(block);
    const RowNumber* rows = rows_.rows(block, one.node);
    const uint64_t* values = rows_.values(block, one.node);
    if (joint)
      add_joint_rows(p_.grouped, group, first, rows, n, values, joint, cells, tables_.shape);
    else
      add_rows(p_.grouped, group, first, rows, n, values, cells, tables_.shape, n_cells_);
  }
  // Sums the parts of what was built, and subtracts it from the parent's table, which becomes the sibling's.
  void finish_tables(int64_t column) {
    const int64_t words = n_cells_ * tables_.shape.n_words;
    for (const Built& one : built_) {
      uint64_t* cells = tables_.of_feature(column, one.node);
      for (int64_t part = 1; part < tables_.n_parts; ++part) {
        const uint64_t* more = tables_.of_feature(column, one.node, part);
        for (int64_t i = 0; i < words; ++i) cells[i] += more[i];
      }
      if (one.sibling != kNone) subtract(tables_.of_feature(column, one.sibling), cells, words);
    }
  }

  // ---------------------------------------------------------------------------------------------- splits
  void choose(int64_t level) {
    const int64_t n_found = p_.symmetric ? 1 : n_nodes_, first_slot = p_.symmetric ? level : n_nodes_ - 1;
    lighter_right_.assign(n_nodes_, 0);
    for (int64_t i = 0; i < n_found; ++i) {
      const bool* allowed = p_.allowed + level * p_.n_features();
      int64_t feature = 0;
      Found<T> best;
      for (int64_t f = 0; f < p_.n_features(); ++f) {
        const Found<T>& found = found_[f * n_nodes_ + i];
        if (allowed[f] && found.gain > best.gain) best = found, feature = f;
      }
      settle(i, p_.symmetric ? n_nodes_ : i + 1, first_slot + i, feature, best);
    }
  }
  // Writes the split of the nodes [first, last) to its slot, and finds which of their right children are the lighter.
  void settle(int64_t first, int64_t last, int64_t slot, int64_t feature, const Found<T>& best) {
    const bool is_split = best.gain > 0;
    const int32_t position = best.candidate / 2;
    std::vector<uint8_t> right(p_.n_codes + 1);
    const int64_t threshold = is_split ? position : p_.n_codes;
    const bool by_category = is_split && p_.is_categorical(feature);
    for (int64_t code = 0; code <= p_.n_codes; ++code) right[code] = code > 0 && code > threshold && !by_category;
    right[p_.n_codes] = 0;
    std::vector<uint8_t> present;
    if (by_category) {
      const Order order = searches_[0].order_of(feature, first, last, best.by_output);
      present.assign(p_.n_codes, 0);
      for (int64_t rank = 0; rank < order.n_present; ++rank) {
        right[order.codes[rank]] = goes_right(order, rank, position);
        present[order.codes[rank]] = 1;
      }
    }
    const bool missing_right = is_split && weigh(first, last, feature, right.data(), best.candidate % 2 == 1);
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
    const uint8_t* set = nullptr;
    if (by_category || is_joint(feature)) {
      right[0] = missing_right;
      set = by_cell(feature, right.data(), sets_ + first * set_size());
    }
    for (int64_t node = first; node < last; ++node)
      routes_[node] = {p_.column_of(feature), static_cast<int32_t>(threshold), missing_right, set};
  }
  // Says of each code of a feature's column whether it goes right, and no for a code beyond, given that of the feature's.
  const uint8_t* by_cell(int64_t feature, const uint8_t* right, uint8_t* set) const {
    std::fill_n(set, set_size(), uint8_t{0});
    const int64_t column = p_.column_of(feature);
    if (is_joint(feature))
      for (int64_t i = 0; i < p_.bundles.n_joint[column]; ++i) set[i] = right[p_.bundles.codes_of(feature)[i]];
    else
      std::copy_n(right, p_.n_codes, set);
    return set;
  }
  int64_t set_size() const { return std::max<int64_t>(n_cells_ + 1, p_.grouped.wide ? 0 : 256); }
  bool is_joint(int64_t feature) const { return p_.bundles.any() && is_shared_[feature]; }
  // Says where missing values go, those that were not there with the heavier child, and notes the lighter children.
  bool weigh(int64_t first, int64_t last, int64_t feature, const uint8_t* right, bool missing_right) {
    const int64_t n_words = tables_.shape.n_words, n_pairs = p_.rules.n_pairs;
    std::vector<int32_t> excess((last - first) * n_pairs, 0), missing((last - first) * n_pairs, 0);
    std::vector<int32_t> excess_of_all(n_pairs, 0), all_missing(n_pairs, 0);
    for (int64_t node = first; node < last; ++node) {
      if (!tables_.has(node)) continue;
      const uint64_t* cells = searches_[0].cells_of(feature, node);
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
  void with_codes(int64_t column, const Work& work) const {
    const GroupedBins& bins = p_.grouped;
    const int64_t first = column / bins.width * bins.n_rows * bins.width + column % bins.width;
    if (bins.wide)
      work(Column<uint16_t>{static_cast<const uint16_t*>(bins.codes) + first, bins.width});
    else
      work(Column<uint8_t>{static_cast<const uint8_t*>(bins.codes) + first, bins.width});
  }

  // Sends the rows to the children, and says which tables are to be built: those of the lighter ones.
  void descend() {
    std::vector<std::atomic<int64_t>> n_built(n_nodes_);
    crew_.run(rows_.n_blocks, [&](int64_t block, int64_t worker) {
      NodeRows next = rows_.next();
      for (int64_t node = 0; node < n_nodes_; ++node) {
        if (!is_split(node) || !tables_.has(node)) {
          rows_.keep_left(block, node);
          continue;
        }
        const Route& route = routes_[node];
        with_codes(route.column, [&](const auto& codes) {
          rows_.split(block, node, codes, route, static_cast<uint32_t>(n_cells_), worker);
        });
        const int64_t built = 2 * node + lighter_right_[node];
        next.collect_values(block, built);
        n_built[node] += next.count(block, built);
      }
    });
    rows_.advance();
    std::vector<int64_t> slots(2 * n_nodes_, NodeTables::kNone);
    int64_t n_joint = 0;
    built_.clear();
    for (int64_t node = 0; node < n_nodes_; ++node) {
      if (!tables_.has(node)) continue;
      const int64_t built = 2 * node + lighter_right_[node], other = 4 * node + 1 - built;
      if (n_built[node] == 0) {
        slots[is_split(node) ? other : 2 * node] = tables_.slot(node);
        continue;
      }
      slots[other] = tables_.slot(node);
      slots[built] = tables_.new_slot();
      const bool is_joint = n_joint < n_joint_ && is_worth_joint(n_built[node]);
      built_.push_back({built, other, is_joint ? n_joint++ : kNone});
    }
    tables_.set(std::move(slots));
  }

  // The nodes of the last level are current: their rows go one level further.
  void write_leaves(int64_t block) {
    int32_t* leaf = p_.leaf + rows_.first_row(block);
    for (int64_t node = 0; node < n_nodes_; ++node) {
      const RowNumber* rows = rows_.rows(block, node);
      const int64_t n = rows_.count(block, node);
      if (!n) continue;
      with_codes(routes_[node].column, [&](const auto& codes) {
        const auto of_block = codes.from(rows_.first_row(block));
        using Code = typename std::decay_t<decltype(codes)>::Type;
        with_test<Code>(routes_[node], static_cast<uint32_t>(n_cells_), [&](const auto& goes_right) {
          const auto leaf_of = [&](int64_t row) { return static_cast<int32_t>(2 * node + goes_right(of_block[row])); };
          if (rows)
            for (int64_t i = 0; i < n; ++i) leaf[rows[i]] = leaf_of(rows[i]);
          else
            for (int64_t i = 0; i < n; ++i) leaf[i] = leaf_of(i);
        });
      });
    }
  }
  // Those of rows that are not active, which go all the way.
  template <typename Code>
  void write_other_leaves() {
    const Routing<T, Code> routing(p_, is_shared_);
    crew_.run(rows_.n_blocks, [&](int64_t block, int64_t) {
      if (rows_.count_all(block, n_nodes_) < rows_.rows_of(block))
        routing.write_leaves(rows_.first_row(block), rows_.rows_of(block), p_.leaf);
    });
  }

  const Growth<T>& p_;
  const int64_t n_statistics_;
  const std::vector<T> factor_;
  const int64_t n_cells_;  // of a column's table
  const std::vector<bool> is_shared_;
  const int64_t n_workers_, max_nodes_;
  NodeTables tables_;
  const bool passes_;
  const int64_t n_joint_;
  NodeRows rows_;
  std::vector<PassingTable> passing_;       // one for each worker
  std::vector<FeatureSearch<T>> searches_;  // one for each worker
  std::vector<Found<T>> found_;             // [f][nodes]
  std::vector<Route> routes_;
  std::vector<uint8_t> lighter_right_;
  std::vector<Built> built_;
  int64_t n_nodes_ = 1;
  uint64_t* joint_memory_ = nullptr;
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
