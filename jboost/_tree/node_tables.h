// The tables of a level's nodes: which node has which slot, and where that lies.

#ifndef JBOOST_TREE_NODE_TABLES_H_
#define JBOOST_TREE_NODE_TABLES_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "../_histogram/tables.h"

namespace jboost {

// A node without rows has no table. There is a table for each part of the rows, until the parts are summed in the first.
class NodeTables {
 public:
  static constexpr int64_t kNone = -1;

  NodeTables(const GroupedBins& grouped, const TableShape& shape, int64_t n_parts, int64_t max_slots)
      : shape(shape), n_parts(n_parts), n_groups_(grouped.n_groups()), width_(grouped.width),
        group_words_(shape.words_for(max_slots)), slots_(max_slots, kNone) {}

  int64_t words_needed() const { return n_parts * n_groups_ * group_words_; }
  void use(uint64_t* memory) { cells_ = memory; }

  bool has(int64_t node) const { return slots_[node] != kNone; }
  int64_t slot(int64_t node) const { return slots_[node]; }
  int64_t new_slot() { return n_slots_++; }
  void set(std::vector<int64_t> slots) { slots_ = std::move(slots); }  // of all nodes of a level

  uint64_t* of_group(int64_t group, int64_t node, int64_t part) const {
    return cells_ + (part * n_groups_ + group) * group_words_ + slots_[node] * shape.slot_words;
  }
  uint64_t* of_feature(int64_t feature, int64_t node, int64_t part = 0) const {
    return of_group(feature / width_, node, part) + feature % width_ * shape.feature_words;
  }

  const TableShape shape;
  const int64_t n_parts;

 private:
  const int64_t n_groups_, width_, group_words_;
  std::vector<int64_t> slots_;
  int64_t n_slots_ = 0;
  uint64_t* cells_ = nullptr;
};

}  // namespace jboost

#endif  // JBOOST_TREE_NODE_TABLES_H_
