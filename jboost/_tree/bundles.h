// Features in bundles: several share one column of joint codes, whose table gives the code of each.

#ifndef JBOOST_TREE_BUNDLES_H_
#define JBOOST_TREE_BUNDLES_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../_histogram/tables.h"

namespace jboost {

constexpr int64_t kJointCodesOfBundle = 256;  // at most: a joint code is a byte

// What the columns of a tree's bins hold. A column of one feature alone holds that feature's own codes.
struct Bundles {
  const int32_t* column = nullptr;   // of each feature; null if every column is a feature
  const uint8_t* code = nullptr;     // [f, 256], of each feature at each joint code
  const int32_t* n_joint = nullptr;  // joint codes of each column
  int64_t n_features = 0, n_columns = 0;

  bool any() const { return column != nullptr; }
  // Codes that a table of a column must hold.
  int64_t n_cells(int64_t n_codes) const {
    return any() ? std::max<int64_t>(1, *std::max_element(n_joint, n_joint + n_columns)) : n_codes;
  }
  const uint8_t* codes_of(int64_t feature) const { return code + feature * kJointCodesOfBundle; }

  // Whether the table of each feature must be made of its column's: not where the column is its own, with all codes.
  std::vector<bool> are_shared(int64_t n_codes) const {
    std::vector<int32_t> members(n_columns, 0);
    std::vector<bool> result(n_features);
    for (int64_t feature = 0; feature < n_features; ++feature) ++members[column[feature]];
    for (int64_t feature = 0; feature < n_features; ++feature)
      result[feature] = members[column[feature]] > 1 || n_joint[column[feature]] < n_codes;
    return result;
  }

  // Leaves out the columns that fill up the last group, and returns how many there are.
  int64_t fit_columns() {
    while (n_columns > 1 && n_joint[n_columns - 1] == 0) --n_columns;
    return n_columns;
  }
  // Sums the joint table of a feature's column over what the others are: the feature's own table, in `own`. Sums of
  // integers, so they are those that the rows would have given.
  void sum_out(int64_t feature, int64_t n_codes, int64_t n_words, const uint64_t* joint, uint64_t* own) const {
    std::memset(own, 0, n_codes * n_words * sizeof(uint64_t));
    const uint8_t* codes = codes_of(feature);
    for (int64_t i = 0; i < n_joint[column[feature]]; ++i)
      for (int64_t word = 0; word < n_words; ++word) own[codes[i] * n_words + word] += joint[i * n_words + word];
  }
};

}  // namespace jboost

#endif  // JBOOST_TREE_BUNDLES_H_
