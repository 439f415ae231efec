// What a tree is grown from, and where it goes.

#ifndef JBOOST_TREE_GROWTH_H_
#define JBOOST_TREE_GROWTH_H_

#include <algorithm>
#include <cstdint>

#include "../_histogram/joint.h"
#include "../_histogram/tables.h"
#include "../_split/search.h"
#include "bundles.h"

namespace jboost {

constexpr int64_t kKeptTables = 32 << 20;

template <typename T>
struct Growth {
  GroupedBins grouped;
  Bundles bundles;            // of the columns of `grouped`
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
  int64_t kept_bytes = kKeptTables;  // of tables, from which on they may be made when they are read

  int32_t* feature;  // of every slot: a level, or a node
  int32_t* threshold;
  bool* missing_right;
  uint32_t* categories_right;  // [slots, words]
  int64_t n_set_words;
  T* gain;
  int32_t* leaf;  // [n]

  int64_t n_rows() const { return grouped.n_rows; }
  int64_t n_features() const { return bundles.any() ? bundles.n_features : grouped.n_features; }
  int64_t n_cells() const { return bundles.n_cells(n_codes); }  // of a column's table
  int64_t column_of(int64_t feature) const { return bundles.any() ? bundles.column[feature] : feature; }
  bool is_categorical(int64_t column) const {
    return std::binary_search(categorical, categorical + n_categorical, static_cast<int32_t>(column));
  }
};

}  // namespace jboost

#endif  // JBOOST_TREE_GROWTH_H_
