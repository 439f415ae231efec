// What is known of a model before its rows are scored: which columns it reads, and its splits in a form to compare with.

#ifndef JBOOST_SCORING_PLAN_H_
#define JBOOST_SCORING_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace jboost {

template <typename T>
struct Scoring {
  const void* bins;                  // uint8 or uint16 [f, n]
  bool wide_bins;                    // uint16
  const int32_t* feature;            // [t, trees, s]
  const int32_t* threshold;          // [t, trees, s]
  const bool* missing_right;         // [t, trees, s]
  const uint32_t* categories_right;  // [t, trees, s, words]
  const bool* is_categorical;        // [f]
  const T* leaf_value;               // [t, leaves, k]
  const T* start;                    // [n, k]
  T* out;                            // [n, k]
  int64_t n_rows, n_features, n_outputs, n_rounds;
  int64_t n_trees;  // of a round: 1 or k
  int64_t n_slots, n_words, depth;
  bool symmetric, has_missing;
};

namespace internal {

constexpr int64_t kRowStep = 128;  // rows of a block are a multiple: two of the longest vectors of uint8
constexpr int64_t kMostRows = 1024, kBlockBytes = 32768;

// A row goes right if code - shift > above, in the unsigned type of the codes: a shift of 1 makes the missing code 0
// the largest of all. A categorical split has a set of codes instead.
struct Split {
  int32_t column;  // of a block
  int32_t set;     // its number, or -1
  uint16_t shift, above;
};

// What all blocks of rows share.
template <typename T>
struct Plan {
  Scoring<T> p;
  std::vector<int32_t> used;   // the features that a block holds; a column of the largest code follows them
  std::vector<Split> splits;   // [t, trees, s]
  std::vector<uint32_t> sets;  // [sets, words]
  std::vector<bool> has_sets;  // [t, trees]
  std::vector<T> own_tables;   // of several outputs
  const T* tables;             // leaf values [t, k, leaves]
  int64_t n_leaves, block_rows;
};

template <typename T>
int32_t split_feature(const Scoring<T>& p, int64_t i) {
  return std::clamp<int32_t>(p.feature[i], 0, static_cast<int32_t>(p.n_features) - 1);
}

template <typename T>
Split describe_split(Plan<T>& plan, int64_t i, int32_t column) {
  const Scoring<T>& p = plan.p;
  if (p.n_words > 0 && p.is_categorical[split_feature(p, i)]) {
    const size_t at = plan.sets.size();
    plan.sets.insert(plan.sets.end(), p.categories_right + i * p.n_words, p.categories_right + (i + 1) * p.n_words);
    plan.sets[at] = (plan.sets[at] & ~uint32_t{1}) | (p.missing_right[i] ? 1 : 0);
    return {column, static_cast<int32_t>(at / p.n_words), 0, 0};
  }
  const int32_t largest = p.wide_bins ? 65535 : 255;
  const bool shifts = p.has_missing && p.missing_right[i];
  // With a missing value on the left, code 0 stays there whatever the threshold.
  const int32_t threshold = std::clamp(p.threshold[i], p.has_missing && !shifts ? 0 : -1, largest);
  if (threshold < (shifts ? 1 : 0)) return {static_cast<int32_t>(plan.used.size()), -1, 0, 0};  // all go right
  return {column, -1, static_cast<uint16_t>(shifts), static_cast<uint16_t>(threshold - shifts)};
}

template <typename T>
std::vector<T> tables_by_output(const Scoring<T>& p, int64_t n_leaves) {
  const int64_t k = p.n_outputs, size = n_leaves * k;
  std::vector<T> tables(p.n_rounds * size);
  for (int64_t round = 0; round < p.n_rounds; ++round)
    for (int64_t i = 0; i < size; ++i)
      tables[round * size + i % k * n_leaves + i / k] = p.leaf_value[round * size + i];
  return tables;
}

template <typename T>
Plan<T> make_plan(const Scoring<T>& p) {
  Plan<T> plan{p, {}, {}, {}, {}, {}, p.leaf_value, int64_t{1} << p.depth, kMostRows};
  const int64_t n_splits = p.n_rounds * p.n_trees * p.n_slots;
  std::vector<int32_t> place(p.n_features, -1);
  for (int64_t i = 0; i < n_splits; ++i) {
    const int32_t feature = split_feature(p, i);
    if (place[feature] >= 0) continue;
    place[feature] = static_cast<int32_t>(plan.used.size());
    plan.used.push_back(feature);
  }
  plan.splits.reserve(n_splits);
  plan.has_sets.assign(p.n_rounds * p.n_trees, false);
  for (int64_t i = 0; i < n_splits; ++i) {
    plan.splits.push_back(describe_split(plan, i, place[split_feature(p, i)]));
    if (plan.splits.back().set >= 0) plan.has_sets[i / p.n_slots] = true;
  }
  if (p.n_outputs > 1) {
    plan.own_tables = tables_by_output(p, plan.n_leaves);
    plan.tables = plan.own_tables.data();
  }
  const int64_t row_bytes = plan.used.size() * (p.wide_bins ? 2 : 1) + p.n_outputs * sizeof(T);
  plan.block_rows = std::clamp(kBlockBytes / row_bytes / kRowStep, int64_t{1}, kMostRows / kRowStep) * kRowStep;
  return plan;
}

}  // namespace internal
}  // namespace jboost

#endif  // JBOOST_SCORING_PLAN_H_
