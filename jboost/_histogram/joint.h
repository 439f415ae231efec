// Two columns at once: one addition to the joint histogram of both instead of one to each, where codes have six bits.
//
// The sums of a joint histogram over either code are the histograms of the columns. They are sums of integers, so the
// order does not matter. Clearing and summing take as long as adding some thousand rows: this is for nodes with more.

#ifndef JBOOST_HISTOGRAM_JOINT_H_
#define JBOOST_HISTOGRAM_JOINT_H_

#include <algorithm>
#include <cstdint>

#include "tables.h"

namespace jboost {

constexpr int64_t kJointCodes = 64;
constexpr int64_t kJointStep = kGroup / 2 * kJointCodes;     // between the codes of a second column
constexpr int64_t kJointWords = kJointCodes * kJointStep;    // of a group: [second code][pair][first code]
constexpr int64_t kJointNodes = 4;    // whose joint tables fit in the second-level cache together
constexpr int64_t kJointRows = 8192;  // from how many rows on it is faster, measured
constexpr int64_t kJointWidth = 4;    // and from how many columns on

static_assert(kJointStep == 256, "a step of the second code is one of the second byte");

// Whether the columns of all groups can be added in pairs.
inline bool can_be_joint(const GroupedBins& bins, const TableShape& shape, int64_t n_codes) {
  return !bins.wide && bins.width >= kJointWidth && shape.n_words == 1 && n_codes <= kJointCodes;
}

namespace internal {

// An odd last column has a table of its own.
template <int F, bool kInTurn>
void add_pairs(const uint8_t* codes, int64_t width, const RowNumber* rows, int64_t n, const uint64_t* values,
               uint64_t* joint, uint64_t* last) {
  const int64_t ahead = prefetch_distance(n);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t later = std::min(i + ahead, n - 1);
    __builtin_prefetch(codes + width * (kInTurn ? later : rows[later]));
    if (kInTurn) __builtin_prefetch(values + later);
    const uint64_t value = values[i];
    const uint8_t* here = codes + width * (kInTurn ? i : rows[i]);
#pragma GCC unroll 4
    for (int j = 0; j < F / 2; ++j) {
      // Both codes in one load, at once the place of the cell: between six bits and six bits, two are free for the
      // pair. A code beyond the last adds to another cell.
      const uint32_t both = (here[2 * j] | here[2 * j + 1] << 8) & 0x3f3f;
      joint[both + j * kJointCodes] += value;
    }
    if (F % 2) last[here[F - 1]] += value;
  }
}

template <int F>
void add_group_by_pairs(int64_t n_features, const uint8_t* codes, int64_t width, const RowNumber* rows, int64_t n,
                        const uint64_t* values, uint64_t* joint, uint64_t* last) {
  if constexpr (F == 0) {
    return;
  } else if (n_features != F) {
    add_group_by_pairs<F - 1>(n_features, codes, width, rows, n, values, joint, last);
  } else if (rows) {
    add_pairs<F, false>(codes, width, rows, n, values, joint, last);
  } else {
    add_pairs<F, true>(codes, width, rows, n, values, joint, last);
  }
}

}  // namespace internal

// Does what add_rows does to a slot of a group, with `add_marginals` after the last rows. Joint tables start as zeros.
inline void add_joint_rows(const GroupedBins& bins, int64_t group, int64_t first_row, const RowNumber* rows, int64_t n,
                           const uint64_t* values, uint64_t* joint, uint64_t* table, const TableShape& shape) {
  const uint8_t* codes = static_cast<const uint8_t*>(bins.codes) + (group * bins.n_rows + first_row) * bins.width;
  const int64_t n_features = bins.features_of(group);
  internal::add_group_by_pairs<kGroup>(n_features, codes, bins.width, rows, n, values, joint,
                                       table + (n_features - 1) * shape.feature_words);
}

// Adds the sums of the joint tables of a group to the tables of its columns.
inline void add_marginals(const uint64_t* joint, int64_t n_features, int64_t n_codes, uint64_t* table,
                          const TableShape& shape) {
  for (int64_t pair = 0; pair < n_features / 2; ++pair) {
    uint64_t* first = table + 2 * pair * shape.feature_words;
    uint64_t* second = first + shape.feature_words;
    for (int64_t code = 0; code < n_codes; ++code) {
      const uint64_t* cells = joint + code * kJointStep + pair * kJointCodes;
      uint64_t sum = 0;
      for (int64_t i = 0; i < n_codes; ++i) {
        first[i] += cells[i];
        sum += cells[i];
      }
      second[code] += sum;
    }
  }
}

}  // namespace jboost

#endif  // JBOOST_HISTOGRAM_JOINT_H_
