// The rows of a tree while it grows: ordered by node within blocks that fit in the cache.

#ifndef JBOOST_TREE_ROWS_H_
#define JBOOST_TREE_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "../_histogram/tables.h"

namespace jboost {

// Where a row of a node goes. Code 0 is a missing value.
struct Route {
  int32_t feature = 0, threshold = 0;
  bool missing_right = false;
  const uint8_t* right = nullptr;  // by code, for a subset of categories; null for a threshold
};

// Calls work(test) with the test of a route as a function of the code: one comparison, or a look-up.
template <typename Work>
void with_test(const Route& route, uint32_t n_codes, const Work& work) {
  if (route.right) {
    const uint8_t* right = route.right;
    work([right, n_codes](uint32_t code) -> uint32_t { return right[std::min(code, n_codes)]; });
  } else {
    // A missing value that goes right becomes the largest number of all.
    const uint32_t shift = route.missing_right, limit = static_cast<uint32_t>(route.threshold) - shift;
    work([shift, limit](uint32_t code) -> uint32_t { return code - shift > limit; });
  }
}

// The codes of one column, those of row i at [i * step].
template <typename Code>
struct Column {
  const Code* codes;
  int64_t step;

  Code operator[](int64_t row) const { return codes[row * step]; }
  Column from(int64_t row) const { return {codes + row * step, step}; }
};

// Moves the rows that go right behind the others, both in their order; returns how many went left. Overwrites `from`.
template <typename Code, typename Test>
int64_t partition(Column<Code> codes, const Test& goes_right, uint32_t* from, int64_t n, uint32_t* to) {
  int64_t n_left = 0, n_right = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t row = from[i], right = goes_right(codes[row]);
    to[n_left] = row;  // both are written, one is kept: no branch to be guessed
    from[n_right] = row;
    n_left += !right;
    n_right += right;
  }
  std::memcpy(to + n_left, from, n_right * sizeof(uint32_t));
  return n_left;
}

// Rows by block and node. Row numbers count from the start of their block.
class NodeRows {
 public:
  NodeRows(int64_t n_rows, int64_t block_rows, int64_t n_words, int64_t max_nodes)
      : n_rows(n_rows), block_rows(block_rows), n_blocks((n_rows + block_rows - 1) / block_rows), n_words(n_words),
        max_nodes_(max_nodes) {}

  int64_t words_needed() const {
    return 2 * words_of_rows() + n_rows * n_words + 2 * words_of_starts();
  }
  void use(uint64_t* memory) {
    now_ = reinterpret_cast<uint32_t*>(memory);
    next_ = reinterpret_cast<uint32_t*>(memory + words_of_rows());
    values_ = memory + 2 * words_of_rows();
    starts_ = reinterpret_cast<uint32_t*>(values_ + n_rows * n_words);
    next_starts_ = reinterpret_cast<uint32_t*>(values_ + n_rows * n_words + words_of_starts());
  }

  int64_t first_row(int64_t block) const { return block * block_rows; }
  int64_t rows_of(int64_t block) const { return std::min(block_rows, n_rows - first_row(block)); }
  int64_t count(int64_t block, int64_t node) const { return starts(block)[node + 1] - starts(block)[node]; }
  uint32_t* rows(int64_t block, int64_t node) { return now_ + first_row(block) + starts(block)[node]; }
  // The packed statistics of the rows of a node, if they were collected.
  uint64_t* values(int64_t block, int64_t node) {
    return values_ + (first_row(block) + starts(block)[node]) * n_words;
  }

  // Puts the active rows of a block in the root.
  void start(int64_t block, const bool* active) {
    uint32_t* rows = now_ + first_row(block);
    const bool* is_active = active + first_row(block);
    uint32_t n = 0;
    for (int64_t i = 0; i < rows_of(block); ++i) {
      rows[n] = static_cast<uint32_t>(i);
      n += is_active[i];
    }
    starts(block)[0] = 0;
    starts(block)[1] = n;
  }

  void collect_values(int64_t block, int64_t node, const int32_t* statistics, int64_t n_statistics) {
    const uint32_t* row = rows(block, node);
    uint64_t* value = values(block, node);
    const int32_t* of_block = statistics + first_row(block) * n_statistics;
    const int64_t n = count(block, node);
    if (n_statistics == 2)
      for (int64_t i = 0; i < n; ++i) value[i] = packed(of_block[2 * row[i]], of_block[2 * row[i] + 1]);
    else
      for (int64_t i = 0; i < n; ++i) pack_row(of_block + n_statistics * row[i], n_statistics, value + i * n_words);
  }

  // Sends the rows of a node of a block to its children, in the arrangement that `advance` makes the current one.
  template <typename Code>
  void split(int64_t block, int64_t node, Column<Code> codes, const Route& route, uint32_t n_codes) {
    const int64_t from = starts(block)[node], n = count(block, node);
    uint32_t* target = next_ + first_row(block) + from;
    uint32_t* after = next_starts_ + block * (max_nodes_ + 1);
    int64_t n_left = n;
    with_test(route, n_codes, [&](const auto& goes_right) {
      n_left = partition(codes.from(first_row(block)), goes_right, rows(block, node), n, target);
    });
    after[2 * node] = static_cast<uint32_t>(from);
    after[2 * node + 1] = static_cast<uint32_t>(from + n_left);
    after[2 * node + 2] = static_cast<uint32_t>(from + n);
  }
  void keep_left(int64_t block, int64_t node) {
    const int64_t from = starts(block)[node], n = count(block, node);
    std::memcpy(next_ + first_row(block) + from, rows(block, node), n * sizeof(uint32_t));
    uint32_t* after = next_starts_ + block * (max_nodes_ + 1);
    after[2 * node] = static_cast<uint32_t>(from);
    after[2 * node + 1] = after[2 * node + 2] = static_cast<uint32_t>(from + n);
  }
  void advance() {
    std::swap(now_, next_);
    std::swap(starts_, next_starts_);
  }
  // Where `collect_values` is to be called before `advance`: on the arrangement to come.
  NodeRows next() const {
    NodeRows other = *this;
    other.advance();
    return other;
  }

  const int64_t n_rows, block_rows, n_blocks, n_words;

 private:
  int64_t words_of_rows() const { return (n_rows + 1) / 2; }
  int64_t words_of_starts() const { return (n_blocks * (max_nodes_ + 1) + 1) / 2; }
  uint32_t* starts(int64_t block) { return starts_ + block * (max_nodes_ + 1); }
  const uint32_t* starts(int64_t block) const { return starts_ + block * (max_nodes_ + 1); }

  int64_t max_nodes_;
  uint32_t *now_ = nullptr, *next_ = nullptr, *starts_ = nullptr, *next_starts_ = nullptr;
  uint64_t* values_ = nullptr;
};

}  // namespace jboost

#endif  // JBOOST_TREE_ROWS_H_
