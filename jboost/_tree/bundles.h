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
  const int32_t* column = nullptr;     // of each feature; null if every column is a feature
  const uint8_t* code = nullptr;       // [f, 256], of each feature at each joint code
  const uint8_t* order = nullptr;      // [f, 256], joint codes by rising code, those of the feature's usual one last
  const int32_t* n_unusual = nullptr;  // [f], joint codes before those
  const int32_t* n_joint = nullptr;    // joint codes of each column
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
  // integers, so they are those that the rows would have given; what its usual code has is what is left of the total.
  void sum_out(int64_t feature, int64_t n_codes, int64_t n_words, const uint64_t* joint, uint64_t* own) const {
    std::memset(own, 0, n_codes * n_words * sizeof(uint64_t));
    for (int64_t word = 0; word < n_words; ++word) {
      if (n_words == 1)
        sum_out_word<1>(feature, 1, joint, own);
      else
        sum_out_word<0>(feature, n_words, joint + word, own + word);
    }
  }

 private:
  // S words lie between two cells, or `step` where S is 0.
  template <int S>
  void sum_out_word(int64_t feature, int64_t step, const uint64_t* joint, uint64_t* own) const {
    const int64_t words = S ? S : step, n = n_joint[column[feature]], n_listed = n_unusual[feature];
    const uint8_t *codes = codes_of(feature), *listed = order + feature * kJointCodesOfBundle;
    uint64_t left = 0;
    for (int64_t i = 0; i < n; ++i) left += joint[i * words];
    for (int64_t i = 0; i < n_listed;) {
      const uint8_t code = codes[listed[i]];
      uint64_t sum = 0;
      for (; i < n_listed && codes[listed[i]] == code; ++i) sum += joint[listed[i] * words];
      own[code * words] = sum;
      left -= sum;
    }
    own[codes[listed[n_listed]] * words] = left;
  }
};

}  // namespace jboost

#endif  // JBOOST_TREE_BUNDLES_H_
