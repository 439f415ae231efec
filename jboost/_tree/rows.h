// The rows of a tree while it grows: ordered by node within blocks that fit in the cache.

#ifndef JBOOST_TREE_ROWS_H_
#define JBOOST_TREE_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "../_histogram/tables.h"
#include "partition.h"

namespace jboost {

// The derivatives of the loss by the scores, and what they are multiplied by before they are rounded.
template <typename T>
struct Derivatives {
  const T *g, *h;  // [n, k]
  const T* factor;  // of g_1, h_1, g_2, ...; 0 for a column that counts as 0
  int64_t k;
  bool counts;  // whether rows are counted too
};

// The integer nearest to value * factor, which is below 2^31 in magnitude: its last bits are the low ones of a double
// of this size.
template <typename T>
inline int32_t rounded(T value, T factor) {
  const double shifted = static_cast<double>(factor == 0 ? T{0} : value * factor) + 6755399441055744.0;  // 1.5 * 2^52
  uint64_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  return static_cast<int32_t>(static_cast<uint32_t>(bits));
}

// Where a row of a node goes. Code 0 is a missing value.
struct Route {
  int64_t column = 0;
  int32_t threshold = 0;
  bool missing_right = false;
  const uint8_t* right = nullptr;  // by code, for a subset of categories or of joint codes; null for a threshold
};

// Calls work(test) with the test of a route as a function of the code: one comparison, or a look-up. A set has an entry
// for n_codes, which stands for all codes beyond, and one for each code that a single byte may hold.
template <typename Code, typename Work>
void with_test(const Route& route, uint32_t n_codes, const Work& work) {
  if (route.right) {
    const uint8_t* right = route.right;
    work([right, n_codes](uint32_t code) -> uint32_t {
      return right[sizeof(Code) == 1 ? code : std::min(code, n_codes)];
    });
  } else {
    // A missing value that goes right becomes the largest number of all.
    const uint32_t shift = route.missing_right, limit = static_cast<uint32_t>(route.threshold) - shift;
    work([shift, limit](uint32_t code) -> uint32_t { return code - shift > limit; });
  }
}

// Rows by block and node. Row numbers count from the start of their block; those of a node that has all rows of a block
// are written nowhere.
class NodeRows {
 public:
  NodeRows(int64_t n_rows, int64_t block_rows, int64_t n_words, int64_t max_nodes, bool collects, int64_t n_workers)
      : n_rows(n_rows), block_rows(block_rows), n_blocks((n_rows + block_rows - 1) / block_rows), n_words(n_words),
        max_nodes_(max_nodes), n_workers_(n_workers), collects_(collects) {}

  int64_t words_needed() const {
    return words_of(n_rows) + n_workers_ * words_of(block_rows) + (collects_ ? 2 : 1) * n_rows * n_words +
           2 * words_of_starts();
  }
  void use(uint64_t* memory) {
    rows_ = reinterpret_cast<RowNumber*>(memory);
    spare_ = memory += words_of(n_rows);
    values_ = memory += n_workers_ * words_of(block_rows);
    collected_ = memory += n_rows * n_words;
    if (collects_) memory += n_rows * n_words;
    starts_ = reinterpret_cast<uint32_t*>(memory);
    next_starts_ = starts_ + 2 * words_of_starts();
  }

  int64_t first_row(int64_t block) const { return block * block_rows; }
  int64_t rows_of(int64_t block) const { return std::min(block_rows, n_rows - first_row(block)); }
  int64_t count(int64_t block, int64_t node) const { return starts(block)[node + 1] - starts(block)[node]; }
  int64_t count_all(int64_t block, int64_t n_nodes) const { return starts(block)[n_nodes]; }
  bool has_all(int64_t block, int64_t node) const { return count(block, node) == rows_of(block); }
  // Null for all rows in turn.
  const RowNumber* rows(int64_t block, int64_t node) const {
    return has_all(block, node) ? nullptr : rows_ + first_row(block) + starts(block)[node];
  }
  // The packed statistics of the rows of a node, if they were collected.
  const uint64_t* values(int64_t block, int64_t node) const {
    if (has_all(block, node)) return values_ + first_row(block) * n_words;
    return collected_ + (first_row(block) + starts(block)[node]) * n_words;
  }

  // Those of all rows of a block.
  const uint64_t* values_in_turn(int64_t block) const { return values_ + first_row(block) * n_words; }

  // Rounds and packs the statistics of all rows of a block.
  template <typename T>
  void pack(int64_t block, const Derivatives<T>& d) {
    const int64_t first = first_row(block), n = rows_of(block);
    const T *g = d.g + first * d.k, *h = d.h + first * d.k;
    uint64_t* value = values_ + first * n_words;
    if (d.k == 1 && !d.counts) {
      const T g_factor = d.factor[0], h_factor = d.factor[1];
      for (int64_t i = 0; i < n; ++i) value[i] = packed(rounded(g[i], g_factor), rounded(h[i], h_factor));
      return;
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < d.k; ++j)
        *value++ = packed(rounded(g[i * d.k + j], d.factor[2 * j]), rounded(h[i * d.k + j], d.factor[2 * j + 1]));
      if (d.counts) *value++ = packed(1, 0);
    }
  }

  // Puts the active rows of a block in the root.
  void start(int64_t block, const bool* active) {
    RowNumber* rows = rows_ + first_row(block);
    const bool* is_active = active + first_row(block);
    int64_t n = rows_of(block);
    if (std::memchr(is_active, 0, n)) {
      n = 0;
      for (int64_t i = 0; i < rows_of(block); ++i) {
        rows[n] = static_cast<RowNumber>(i);
        n += is_active[i];
      }
    }
    starts(block)[0] = 0;
    starts(block)[1] = static_cast<uint32_t>(n);
  }

  // Puts the statistics of the rows of a node side by side.
  void collect_values(int64_t block, int64_t node) {
    if (!collects_ || has_all(block, node)) return;  // nobody reads them, or they are
    const RowNumber* row = rows(block, node);
    const uint64_t* of_block = values_ + first_row(block) * n_words;
    uint64_t* value = collected_ + (first_row(block) + starts(block)[node]) * n_words;
    const int64_t n = count(block, node);
    if (n_words == 1)
      for (int64_t i = 0; i < n; ++i) value[i] = of_block[row[i]];
    else
      for (int64_t i = 0; i < n; ++i) std::copy_n(of_block + row[i] * n_words, n_words, value + i * n_words);
  }

  // Sends the rows of a node of a block to its children, in the arrangement that `advance` makes the current one.
  template <typename Code>
  void split(int64_t block, int64_t node, Column<Code> codes, const Route& route, uint32_t n_codes, int64_t worker) {
    RowNumber* const rows = rows_ + first_row(block) + starts(block)[node];
    RowNumber* const spare = reinterpret_cast<RowNumber*>(spare_ + worker * words_of(block_rows));
    const Column<Code> of_block = codes.from(first_row(block));
    const int64_t n = count(block, node);
    with_test<Code>(route, n_codes, [&](const auto& goes_right) {
      divide(block, node, has_all(block, node) ? partition<true>(of_block, goes_right, rows, n, spare)
                                               : partition<false>(of_block, goes_right, rows, n, spare));
    });
  }
  void keep_left(int64_t block, int64_t node) { divide(block, node, count(block, node)); }
  void advance() { std::swap(starts_, next_starts_); }
  // Where `collect_values` is to be called before `advance`: on the arrangement to come.
  NodeRows next() const {
    NodeRows other = *this;
    other.advance();
    return other;
  }

  const int64_t n_rows, block_rows, n_blocks, n_words;

 private:
  static int64_t words_of(int64_t n) { return (n * static_cast<int64_t>(sizeof(RowNumber)) + 7) / 8; }
  int64_t words_of_starts() const { return (n_blocks * (max_nodes_ + 1) + 1) / 2; }
  uint32_t* starts(int64_t block) { return starts_ + block * (max_nodes_ + 1); }
  const uint32_t* starts(int64_t block) const { return starts_ + block * (max_nodes_ + 1); }
  // Says of the children of a node that the left one has the first n_left of its rows.
  void divide(int64_t block, int64_t node, int64_t n_left) {
    const uint32_t from = starts(block)[node];
    uint32_t* after = next_starts_ + block * (max_nodes_ + 1) + 2 * node;
    after[0] = from;
    after[1] = from + static_cast<uint32_t>(n_left);
    after[2] = from + static_cast<uint32_t>(count(block, node));
  }

  int64_t max_nodes_, n_workers_;
  bool collects_;
  RowNumber* rows_ = nullptr;
  uint64_t* spare_ = nullptr;  // of each worker, room for the rows of a block
  uint32_t *starts_ = nullptr, *next_starts_ = nullptr;
  uint64_t *values_ = nullptr, *collected_ = nullptr;  // of all rows in turn; by node
};

}  // namespace jboost

#endif  // JBOOST_TREE_ROWS_H_
