// The table of one node and one feature, made when it is read.

#ifndef JBOOST_TREE_PASSING_TABLE_H_
#define JBOOST_TREE_PASSING_TABLE_H_

#include <cstdint>
#include <cstring>

#include "../_histogram/tables.h"
#include "rows.h"

namespace jboost {

// What a worker uses in place of the tables of all nodes where outputs are many and rows are few: a table then takes
// megabytes, and to add the node's rows is less work than to subtract a sibling's table from their parent's. The sums
// are the same integers.
class PassingTable {
 public:
  PassingTable(const GroupedBins& grouped, const NodeRows& rows, const TableShape& shape, int64_t n_codes,
               uint64_t* memory)
      : grouped_(grouped), rows_(rows), shape_(shape), n_codes_(n_codes), cells_(memory) {}

  static int64_t words_needed(const TableShape& shape) { return shape.feature_words; }

  // To be called when the rows have moved on.
  void forget() { feature_ = node_ = kNone; }

  const uint64_t* of(int64_t feature, int64_t node) {
    if (feature != feature_ || node != node_) make(feature, node);
    feature_ = feature;
    node_ = node;
    return cells_;
  }

 private:
  static constexpr int64_t kNone = -1;

  void make(int64_t feature, int64_t node) {
    std::memset(cells_, 0, n_codes_ * shape_.n_words * sizeof(uint64_t));
    for (int64_t block = 0; block < rows_.n_blocks; ++block)
      add_rows_to_feature(grouped_, feature, rows_.first_row(block), rows_.rows(block, node), rows_.count(block, node),
                          rows_.values_in_turn(block), cells_, shape_, n_codes_);
  }

  const GroupedBins& grouped_;
  const NodeRows& rows_;
  const TableShape& shape_;
  const int64_t n_codes_;
  uint64_t* const cells_;
  int64_t feature_ = kNone, node_ = kNone;
};

}  // namespace jboost

#endif  // JBOOST_TREE_PASSING_TABLE_H_
