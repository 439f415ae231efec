// Where rows that took no part in growing a tree go from its root: many of them where rows are drawn.

#ifndef JBOOST_TREE_ROUTING_H_
#define JBOOST_TREE_ROUTING_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "growth.h"
#include "rows.h"

namespace jboost {

// The splits of a finished tree. Rows go down level by level, some hundreds at a time: within a level none of them waits for
// another, and what is divided out of a split is found once for all.
template <typename T, typename Code>
class Routing {
 public:
  // `is_shared` says of each feature whether its column holds joint codes.
  Routing(const Growth<T>& p, const std::vector<bool>& is_shared)
      : p_(p), splits_(p.symmetric ? p.depth : (int64_t{1} << p.depth) - 1), joint_sets_(splits_.size() * kJointWords) {
    const int64_t width = p.grouped.width;
    for (size_t slot = 0; slot < splits_.size(); ++slot) {
      const int64_t feature = p.feature[slot], column = p.column_of(feature);
      const bool by_set = p.threshold[slot] < p.n_codes && p.is_categorical(feature);
      const uint32_t shift = p.missing_right[slot];
      Split& split = splits_[slot];
      split = {static_cast<const Code*>(p.grouped.codes) + column / width * p.grouped.n_rows * width + column % width,
               shift, static_cast<uint32_t>(p.threshold[slot]) - shift,
               by_set ? p.categories_right + slot * p.n_set_words : nullptr, static_cast<uint32_t>(p.n_codes)};
      if (p.bundles.any() && is_shared[feature]) make_joint(feature, split, &joint_sets_[slot * kJointWords]);
      has_sets_ = has_sets_ || split.set;
    }
  }

  // Writes the leaves of those of the n rows from `first` on that are not active.
  void write_leaves(int64_t first, int64_t n, int32_t* leaf) const {
    uint32_t rows[kTogether + 1], nodes[kTogether];
    for (int64_t i = 0; i < n;) {
      int64_t m = 0;
      for (; i < n && m < kTogether; ++i) {
        rows[m] = static_cast<uint32_t>(first + i);
        m += !p_.active[first + i];
      }
      std::fill(nodes, nodes + m, 0);
      for (int64_t level = 0; level < p_.depth; ++level) descend(level, rows, m, nodes);
      for (int64_t j = 0; j < m; ++j) leaf[rows[j]] = static_cast<int32_t>(nodes[j]);
    }
  }

 private:
  static constexpr int64_t kTogether = 512;
  struct Split {
    const Code* codes;      // of the column, those of row i at [i * width]
    uint32_t shift, limit;  // as in `with_test`
    const uint32_t* set;    // bits of the codes that go right, or null
    uint32_t n_codes;       // from which on none does
  };
  static constexpr int64_t kJointWords = kJointCodesOfBundle / 32;

  // Makes a split of a feature one of the joint codes of its column, whose bits go into `set`.
  void make_joint(int64_t feature, Split& split, uint32_t* set) const {
    const uint8_t* codes = p_.bundles.codes_of(feature);
    const int32_t n_joint = p_.bundles.n_joint[p_.bundles.column[feature]];
    for (int32_t i = 0; i < n_joint; ++i)
      set[i / 32] |= uint32_t{goes_right(split, codes[i])} << (i % 32);
    split.set = set;
    split.n_codes = n_joint;
  }

  void descend(int64_t level, const uint32_t* rows, int64_t m, uint32_t* nodes) const {
    const int64_t width = p_.grouped.width;
    if (p_.symmetric && !splits_[level].set) {
      const Split split = splits_[level];
      for (int64_t j = 0; j < m; ++j)
        nodes[j] = 2 * nodes[j] + (split.codes[rows[j] * width] - split.shift > split.limit);
      return;
    }
    const Split* splits = splits_.data() + (p_.symmetric ? level : (int64_t{1} << level) - 1);
    const uint32_t one_for_all = p_.symmetric ? 0 : ~uint32_t{0};
    for (int64_t j = 0; j < m; ++j) {
      const Split& split = splits[nodes[j] & one_for_all];
      const uint32_t code = split.codes[rows[j] * width];
      const bool above = code - split.shift > split.limit;  // without a branch, as most splits are
      nodes[j] = 2 * nodes[j] + (has_sets_ && split.set ? is_in(split, code) : above);
    }
  }
  static bool is_in(const Split& split, uint32_t code) {
    return code < split.n_codes && (split.set[code / 32] >> (code % 32) & 1);
  }
  static bool goes_right(const Split& split, uint32_t code) {
    return split.set ? is_in(split, code) : code - split.shift > split.limit;
  }

  const Growth<T>& p_;
  std::vector<Split> splits_;
  std::vector<uint32_t> joint_sets_;
  bool has_sets_ = false;
};

}  // namespace jboost

#endif  // JBOOST_TREE_ROUTING_H_
