// The histogram of xla.py for the cores of a CPU; plain C++17, so that it can be tested without XLA.
//
// A cell of a table holds two int32 sums in one 64-bit word, so that one addition serves g and h. Rows come in blocks:
// those with a slot are collected once, then every feature reads the collection from the cache. Sums are integers:
// the result does not depend on how the work is divided.

#ifndef JBOOST_HISTOGRAM_KERNEL_H_
#define JBOOST_HISTOGRAM_KERNEL_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "../_runtime/parallel.h"
#include "../_runtime/scratch.h"
#include "tables.h"

namespace jboost {

// One histogram: out[b, c, l, f] = sum of values[n, c] over the rows with bins[f, n] = b and slot[n] = l.
struct Problem {
  const void* bins;  // uint8 or uint16
  bool wide_bins;    // uint16
  const uint32_t* slot;
  const int32_t* values;
  int32_t* out;
  int64_t n_rows, n_features, n_statistics, n_slots, n_codes;
};

namespace internal {

constexpr int64_t kBlockRows = 32768;     // their collection stays in the second-level cache
constexpr int64_t kFeaturesPerGroup = 12;  // fewer would spend their time on collecting rows
constexpr int64_t kMaxPairs = 4;

// Where the table of each feature lies, and how the work is divided. P words make a cell.
struct Plan {
  int64_t pairs;           // P
  int64_t slot_words;      // of one slot: a line more than its codes, or equal codes of all slots share a cache set
  int64_t feature_words;
  int64_t table_words;     // all features
  int64_t block_rows, block_words;
  int64_t groups, parts;   // of features, of rows; each (group, part) is one unit of work with a table of its own
  int64_t workers;
};

inline Plan make_plan(const Problem& p, int64_t pairs, const Pool& pool) {
  Plan plan;
  plan.pairs = pairs;
  plan.slot_words = (p.n_codes + kLine) * pairs;
  // A uint8 code beyond n_codes is not looked at: it adds to another cell of the feature, or to these words after it.
  const int64_t spill = p.wide_bins ? 0 : 256 - p.n_codes;
  plan.feature_words = p.n_slots * plan.slot_words + std::max(kLine, spill) * pairs;
  plan.table_words = p.n_features * plan.feature_words;
  plan.block_rows = std::max<int64_t>(1, std::min(p.n_rows, kBlockRows / pairs));
  plan.block_words = plan.block_rows * (1 + pairs) + kLine;
  const int64_t cells = p.n_features * p.n_slots * p.n_codes;
  const int64_t work = (p.n_rows * p.n_features + cells) * pairs;
  plan.workers = pool.workers_for(work);
  plan.groups = std::max<int64_t>(1, std::min(plan.workers, p.n_features / kFeaturesPerGroup));
  while (plan.workers % plan.groups) --plan.groups;
  const int64_t rows_worth_a_table = std::max<int64_t>(1, p.n_rows / (p.n_slots * p.n_codes));
  plan.parts = std::min(plan.workers / plan.groups, rows_worth_a_table);
  return plan;
}

// The rows of a block that have a slot.
template <int P>
struct Collected {
  uint32_t* row;     // within the block
  uint32_t* offset;  // of the slot in a table, in words
  uint64_t* value;   // P words a row
  int64_t count = 0;

  Collected(uint64_t* memory, int64_t capacity)
      : row(reinterpret_cast<uint32_t*>(memory)), offset(row + capacity), value(memory + capacity) {}

  void collect(const Problem& p, const Plan& plan, int64_t start, int64_t n, int64_t statistic) {
    const uint32_t n_slots = static_cast<uint32_t>(p.n_slots);
    const uint32_t slot_words = static_cast<uint32_t>(plan.slot_words);
    const bool has_last = statistic + 2 * P <= p.n_statistics;
    const int32_t* values = p.values + start * p.n_statistics + statistic;
    int64_t k = 0;
    for (int64_t i = 0; i < n; ++i, values += p.n_statistics) {
      const uint32_t slot = p.slot[start + i];
      row[k] = static_cast<uint32_t>(i);
      offset[k] = slot * slot_words;
      for (int q = 0; q < P - 1; ++q) value[k * P + q] = packed(values[2 * q], values[2 * q + 1]);
      value[k * P + P - 1] = packed(values[2 * P - 2], has_last ? values[2 * P - 1] : 0);
      k += slot < n_slots;  // no branch: a row without a slot is overwritten by the next
    }
    count = k;
  }
};

// Adds the collected rows to the tables of F features at once: their additions do not wait for each other.
template <int P, int F, typename Code>
void add_rows(const Collected<P>& rows, const Code* bins, int64_t n_rows, uint64_t* table, int64_t feature_words,
              uint32_t max_code) {
  for (int64_t i = 0; i < rows.count; ++i) {
    const uint32_t row = rows.row[i], offset = rows.offset[i];
    for (int j = 0; j < F; ++j) {
      uint32_t code = bins[j * n_rows + row];
      if (sizeof(Code) > 1) code = std::min(code, max_code);
      uint64_t* cell = table + j * feature_words + offset + code * P;
      for (int q = 0; q < P; ++q) cell[q] += rows.value[i * P + q];
    }
  }
}

// One unit of work: the tables of features [first, last) over rows [start, stop).
template <int P, typename Code>
void fill_tables(const Problem& p, const Plan& plan, int64_t statistic, int64_t first, int64_t last, int64_t start,
                 int64_t stop, uint64_t* table, uint64_t* memory) {
  std::memset(table + first * plan.feature_words, 0, (last - first) * plan.feature_words * sizeof(uint64_t));
  Collected<P> rows(memory, plan.block_rows);
  const uint32_t max_code = static_cast<uint32_t>(p.n_codes);  // falls into the line between slots
  for (; start < stop; start += plan.block_rows) {
    rows.collect(p, plan, start, std::min(plan.block_rows, stop - start), statistic);
    const Code* bins = static_cast<const Code*>(p.bins) + start;
    int64_t f = first;
    for (; f + 2 <= last; f += 2)
      add_rows<P, 2>(rows, bins + f * p.n_rows, p.n_rows, table + f * plan.feature_words, plan.feature_words, max_code);
    if (f < last)
      add_rows<P, 1>(rows, bins + f * p.n_rows, p.n_rows, table + f * plan.feature_words, plan.feature_words, max_code);
  }
}

// Sums the tables of all parts and writes F features of the codes [first, last) where they belong in the output.
template <int P, int F>
void write_features(const Problem& p, const Plan& plan, int64_t statistic, int64_t slot, int64_t feature, int64_t first,
                    int64_t last, const uint64_t* tables) {
  const int64_t statistic_stride = p.n_slots * p.n_features;
  const int64_t n_statistics = std::min<int64_t>(2 * P, p.n_statistics - statistic);
  const uint64_t* source = tables + feature * plan.feature_words + slot * plan.slot_words;
  int32_t* out = p.out + statistic * statistic_stride + slot * p.n_features + feature;
  for (int64_t code = first; code < last; ++code) {
    for (int q = 0; q < P; ++q) {
      uint64_t words[F];
      for (int j = 0; j < F; ++j) words[j] = source[j * plan.feature_words + code * P + q];
      for (int64_t part = 1; part < plan.parts; ++part)
        for (int j = 0; j < F; ++j)
          words[j] += source[part * plan.table_words + j * plan.feature_words + code * P + q];
      int32_t* target = out + (code * p.n_statistics + 2 * q) * statistic_stride;
      for (int j = 0; j < F; ++j) target[j] = high(words[j]);
      if (2 * q + 1 < n_statistics)
        for (int j = 0; j < F; ++j) target[statistic_stride + j] = low(words[j]);
    }
  }
}

template <int P>
void write_codes(const Problem& p, const Plan& plan, int64_t statistic, int64_t first, int64_t last,
                 const uint64_t* tables) {
  for (int64_t slot = 0; slot < p.n_slots; ++slot) {
    int64_t f = 0;
    for (; f + 4 <= p.n_features; f += 4) write_features<P, 4>(p, plan, statistic, slot, f, first, last, tables);
    for (; f < p.n_features; ++f) write_features<P, 1>(p, plan, statistic, slot, f, first, last, tables);
  }
}

// The histogram of statistics [statistic, statistic + 2 P).
template <int P, typename Code>
void build_pairs(const Problem& p, int64_t statistic, const Pool& pool) {
  const Plan plan = make_plan(p, P, pool);
  Scratch scratch;
  uint64_t* tables = scratch.get(plan.parts * plan.table_words + plan.workers * plan.block_words);
  uint64_t* blocks = tables + plan.parts * plan.table_words;

  const int64_t pairs_of_features = (p.n_features + 1) / 2;
  Crew crew(pool, plan.workers);
  crew.run(plan.groups * plan.parts, [&](int64_t unit, int64_t worker) {
    const int64_t group = unit % plan.groups, part = unit / plan.groups;
    fill_tables<P, Code>(p, plan, statistic, 2 * (pairs_of_features * group / plan.groups),
                         std::min(p.n_features, 2 * (pairs_of_features * (group + 1) / plan.groups)),
                         p.n_rows * part / plan.parts, p.n_rows * (part + 1) / plan.parts,
                         tables + part * plan.table_words, blocks + worker * plan.block_words);
  });
  constexpr int64_t tile = 16;  // codes: what they take of the output stays in the first-level cache
  crew.run((p.n_codes + tile - 1) / tile, [&](int64_t number, int64_t) {
    write_codes<P>(p, plan, statistic, tile * number, std::min(tile * (number + 1), p.n_codes), tables);
  });
}

template <typename Code>
void build_all_pairs(const Problem& p, const Pool& pool) {
  for (int64_t statistic = 0; statistic < p.n_statistics;) {
    const int64_t pairs = std::min(kMaxPairs, (p.n_statistics - statistic + 1) / 2);
    if (pairs == 1) build_pairs<1, Code>(p, statistic, pool);
    if (pairs == 2) build_pairs<2, Code>(p, statistic, pool);
    if (pairs == 3) build_pairs<3, Code>(p, statistic, pool);
    if (pairs == 4) build_pairs<4, Code>(p, statistic, pool);
    statistic += 2 * pairs;
  }
}

}  // namespace internal

// Whether a place in the table of one feature fits in 32 bits.
inline bool fits(int64_t n_slots, int64_t n_codes) {
  return n_slots < (int64_t{1} << 32) / (internal::kMaxPairs * (n_codes + kLine));
}

// Builds one histogram. Throws std::bad_alloc.
inline void build_histogram(const Problem& p, const Pool& pool) {
  p.wide_bins ? internal::build_all_pairs<uint16_t>(p, pool) : internal::build_all_pairs<uint8_t>(p, pool);
}

}  // namespace jboost

#endif  // JBOOST_HISTOGRAM_KERNEL_H_
