// A depthwise tree grown from sorted columns: every code of a row is a candidate, and no table has a cell for each code.
// The result is that of levels.py, bit for bit. Plain C++17, so that it can be tested without XLA.
//
// Each column is a list of rows by rising code, within nodes that lie side by side. A running sum over the rows of a
// node gives what goes left at each of its codes; then every list is parted stably by the chosen splits. Both take time
// in proportion to rows and levels, however many codes there are (Chen and Guestrin 2016, algorithm 1).

#ifndef JBOOST_TREE_SORTED_COLUMNS_GROW_H_
#define JBOOST_TREE_SORTED_COLUMNS_GROW_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "../../_runtime/parallel.h"
#include "../../_runtime/scratch.h"
#include "../../_split/search.h"
#include "../rows.h"

namespace jboost {

struct Entry {
  uint32_t row, code;  // code 0: the value is missing
};

template <typename T>
struct SortedGrowth {
  const Entry* columns;  // [f, n], each by rising code
  const T *g, *h;        // [n, k]
  const bool* active;    // [n]
  const bool* allowed;   // [d, f]
  Rules<T> rules;
  int64_t n_rows, n_features, n_codes, depth;

  int32_t* feature;  // of every node in turn
  int32_t* threshold;
  bool* missing_right;
  T* gain;
  int32_t* leaf;  // [n]
};

namespace internal {

template <typename T>
class SortedGrower {
 public:
  SortedGrower(const SortedGrowth<T>& p, const Pool& pool)
      : p_(p),
        n_(p.n_rows),
        c_(p.rules.n_statistics()),
        stride_(whole_lanes(p.n_rows)),
        n_workers_(std::min(pool.workers_for(p.n_rows * p.n_features * p.depth), std::max<int64_t>(1, p.n_features))),
        found_(p.n_features << (p.depth - 1)),
        starts_{0, p.n_rows},
        crew_(pool, n_workers_) {
    uint64_t* memory = scratch_.get(words_of_entries() * p.n_features + words(n_ * c_ * 4) + words(n_) +
                                    n_workers_ * words_of_worker());
    entries_ = reinterpret_cast<Entry*>(memory);
    memory += words_of_entries() * p.n_features;
    statistics_ = reinterpret_cast<int32_t*>(memory);
    memory += words(n_ * c_ * 4);
    right_ = reinterpret_cast<uint8_t*>(memory);
    workers_ = memory + words(n_);
  }

  void grow() {
    collect_statistics();
    for (level_ = 0; level_ < p_.depth; ++level_) {
      n_nodes_ = int64_t{1} << level_;
      crew_.run(p_.n_features, [&](int64_t feature, int64_t worker) {
        const Worker mine = memory_of(worker);
        if (level_ > 0) part(feature, mine);
        search(feature, mine);
      });
      choose();
    }
    level_ = p_.depth - 1;
    write_leaves(column(0));
  }

 private:
  struct Found {
    T gain = -std::numeric_limits<T>::infinity();
    uint32_t code = 0;
    bool missing_right = false;
  };
  struct Worker {
    T* gains;         // [2][stride]
    int32_t* left;    // [c][stride]
    uint32_t* codes;  // [n]: of the candidates
    Entry* aside;     // [n]
    int32_t* ends;    // [2][c]: sums of the node, and of its missing values
  };

  static int64_t words(int64_t bytes) { return (bytes + 63) / 64 * 8; }
  int64_t words_of_entries() const { return words(n_ * static_cast<int64_t>(sizeof(Entry))); }
  int64_t words_of_gains() const { return words(2 * stride_ * static_cast<int64_t>(sizeof(T))); }
  int64_t words_of_worker() const {
    return words_of_gains() + words(c_ * stride_ * 4) + words(stride_ * 4) + words_of_entries() + words(2 * c_ * 4);
  }
  Worker memory_of(int64_t worker) const {
    uint64_t* memory = workers_ + worker * words_of_worker();
    Worker mine{};
    mine.gains = reinterpret_cast<T*>(memory);
    mine.left = reinterpret_cast<int32_t*>(memory += words_of_gains());
    mine.codes = reinterpret_cast<uint32_t*>(memory += words(c_ * stride_ * 4));
    mine.aside = reinterpret_cast<Entry*>(memory += words(stride_ * 4));
    mine.ends = reinterpret_cast<int32_t*>(memory + words_of_entries());
    return mine;
  }
  // A column as it is ordered on this level.
  const Entry* column(int64_t feature) const { return (level_ > 0 ? entries_ : p_.columns) + feature * n_; }

  void collect_statistics() {
    const int64_t k = p_.rules.n_pairs;
    for (int64_t row = 0; row < n_; ++row) {
      int32_t* to = statistics_ + row * c_;
      const bool counts = p_.active[row];
      for (int64_t q = 0; q < k; ++q) {
        const T scale_g = p_.rules.scale[2 * q], scale_h = p_.rules.scale[2 * q + 1];
        to[2 * q] = counts ? rounded(p_.g[row * k + q], scale_g > 0 ? 1 / scale_g : T{0}) : 0;
        to[2 * q + 1] = counts ? rounded(p_.h[row * k + q], scale_h > 0 ? 1 / scale_h : T{0}) : 0;
      }
      if (c_ > 2 * k) to[2 * k] = counts;
    }
  }

  // Orders a column by the nodes of this level, given that it is ordered by those of the level above.
  void part(int64_t feature, const Worker& mine) {
    const Entry* from = (level_ > 1 ? entries_ : p_.columns) + feature * n_;
    Entry* to = entries_ + feature * n_;
    for (int64_t node = 0; node < n_nodes_; node += 2) {
      const int64_t first = starts_[node], last = starts_[node + 2];
      int64_t n_left = 0, n_right = 0;
      for (int64_t i = first; i < last; ++i) {
        const Entry entry = from[i];
        const uint32_t goes_right = right_[entry.row];
        to[first + n_left] = entry;  // both are written, one is kept: no branch to be guessed
        mine.aside[n_right] = entry;
        n_left += !goes_right;
        n_right += goes_right;
      }
      std::memcpy(to + first + n_left, mine.aside, n_right * sizeof(Entry));
    }
  }

  void search(int64_t feature, const Worker& mine) {
    const bool is_allowed = p_.allowed[level_ * p_.n_features + feature];
    for (int64_t node = 0; node < n_nodes_; ++node) {
      const int64_t first = starts_[node], n = starts_[node + 1] - first;
      found_[feature * n_nodes_ + node] = is_allowed && n > 1 ? best_of(column(feature) + first, n, mine) : Found{};
    }
  }

  // The best threshold of a node, whose rows come by rising code.
  Found best_of(const Entry* rows, int64_t n, const Worker& mine) const {
    Found found;
    // The last code leaves nothing for the right.
    const int64_t n_candidates = (c_ == 2 ? sums_by_code<2>(rows, n, mine) : sums_by_code<0>(rows, n, mine)) - 1;
    if (n_candidates < 1) return found;
    for (int64_t c = 0; c < c_; ++c) {
      int32_t* left = mine.left + c * stride_;
      mine.ends[c] = left[n_candidates];
      mine.ends[c_ + c] = mine.codes[0] == 0 ? left[0] : 0;
      std::fill(left + n_candidates, left + whole_lanes(n_candidates), mine.ends[c]);  // whole vectors are read
    }
    int32_t candidate = 0;
    candidate_gains(Candidates{mine.left, mine.ends, mine.ends + c_, n_candidates, stride_}, p_.rules, found.gain,
                    mine.gains);
    best_candidate(mine.gains, n_candidates, p_.rules.has_missing, &found.gain, &candidate);
    found.code = mine.codes[candidate / 2];
    found.missing_right = candidate % 2 == 1;
    return found;
  }

  // Writes the codes that occur, and what the rows up to each of them sum to; returns how many codes there are.
  template <int64_t kStatistics>
  int64_t sums_by_code(const Entry* rows, int64_t n, const Worker& mine) const {
    const int64_t n_statistics = kStatistics ? kStatistics : c_;
    int32_t* sums = mine.ends;
    std::fill(sums, sums + n_statistics, 0);
    int64_t n_codes = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int32_t* of_row = statistics_ + rows[i].row * n_statistics;
      for (int64_t c = 0; c < n_statistics; ++c) mine.left[c * stride_ + n_codes] = sums[c] += of_row[c];
      mine.codes[n_codes] = rows[i].code;
      n_codes += i + 1 == n || rows[i + 1].code != rows[i].code;
    }
    return n_codes;
  }

  // Writes the splits of the level, and finds where their rows go.
  void choose() {
    const bool* allowed = p_.allowed + level_ * p_.n_features;
    std::vector<int64_t> children{0};
    for (int64_t node = 0; node < n_nodes_; ++node) {
      int64_t feature = 0;
      Found best;
      for (int64_t f = 0; f < p_.n_features; ++f) {
        const Found& found = found_[f * n_nodes_ + node];
        if (allowed[f] && found.gain > best.gain) best = found, feature = f;
      }
      const int64_t slot = n_nodes_ - 1 + node, first = starts_[node], last = starts_[node + 1];
      const bool is_split = best.gain > 0;
      const Entry* rows = column(feature);
      p_.feature[slot] = static_cast<int32_t>(feature);
      p_.threshold[slot] = static_cast<int32_t>(is_split ? best.code : p_.n_codes);
      p_.missing_right[slot] = is_split && missing_goes_right(rows + first, last - first, best);
      p_.gain[slot] = is_split ? best.gain : T{0};
      children.push_back(first + send(rows, first, last, p_.threshold[slot], p_.missing_right[slot]));
      children.push_back(last);
    }
    starts_ = std::move(children);
  }

  // Every column has all rows of a node.
  void write_leaves(const Entry* rows) {
    for (int64_t node = 0; node < n_nodes_; ++node)
      for (int64_t i = starts_[2 * node]; i < starts_[2 * node + 2]; ++i)
        p_.leaf[rows[i].row] = static_cast<int32_t>(2 * node + right_[rows[i].row]);
  }

  // Notes which rows go right, and returns how many go left.
  int64_t send(const Entry* rows, int64_t first, int64_t last, int32_t threshold, bool missing_right) {
    int64_t n_left = 0;
    for (int64_t i = first; i < last; ++i) {
      const bool goes_right = rows[i].code == 0 ? missing_right : rows[i].code > static_cast<uint32_t>(threshold);
      right_[rows[i].row] = goes_right;
      n_left += !goes_right;
    }
    return n_left;
  }

  // Missing values that were not there to choose a side go with the heavier child.
  bool missing_goes_right(const Entry* rows, int64_t n, const Found& best) const {
    const int64_t n_pairs = p_.rules.n_pairs;
    std::vector<int32_t> excess(n_pairs, 0), missing(n_pairs, 0);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t q = 0; q < n_pairs; ++q) {
        const int32_t h = statistics_[rows[i].row * c_ + 2 * q + 1];
        if (rows[i].code == 0)
          missing[q] += h;
        else
          excess[q] += rows[i].code > best.code ? h : -h;
      }
    return in_real_units(missing.data()) > 0 ? best.missing_right : in_real_units(excess.data()) > 0;
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

  const SortedGrowth<T>& p_;
  const int64_t n_, c_, stride_, n_workers_;
  std::vector<Found> found_;     // [f][nodes]
  std::vector<int64_t> starts_;  // of the nodes in every column, and the end of the last
  int64_t level_ = 0, n_nodes_ = 1;
  Entry* entries_ = nullptr;       // [f][n]: the columns by node, from the second level on
  int32_t* statistics_ = nullptr;  // [n][c]
  uint8_t* right_ = nullptr;       // [n]: where each row goes from its node
  uint64_t* workers_ = nullptr;
  Scratch scratch_;
  Crew crew_;
};

}  // namespace internal

// Grows one tree. Throws std::bad_alloc.
template <typename T>
void grow_sorted(const SortedGrowth<T>& growth, const Pool& pool) {
  internal::SortedGrower<T>(growth, pool).grow();
}

}  // namespace jboost

#endif  // JBOOST_TREE_SORTED_COLUMNS_GROW_H_
