// Tables of packed sums, and how rows are added to them: the inner loop of every histogram on a CPU.
//
// A cell holds two int32 sums in one 64-bit word, so that one addition serves g and h; with c statistics it has
// P = ceil(c / 2) words. Features come in groups of up to eight, whose codes lie side by side for each row: a row is
// read once for all of them, and additions that follow each other go to different tables and do not wait. Sums are
// integers, so the result does not depend on how the work is divided.

#ifndef JBOOST_HISTOGRAM_TABLES_H_
#define JBOOST_HISTOGRAM_TABLES_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../_runtime/parallel.h"

namespace jboost {

constexpr int64_t kGroup = 8;  // most features of a group
constexpr int64_t kLine = 8;   // words of a cache line

// Of a row in its block: small, as all of them pass through memory level by level.
using RowNumber = uint16_t;
constexpr int64_t kMaxBlockRows = int64_t{1} << 16;

// Two signed sums in one word: high * 2^32 + low, modulo 2^64. A negative low borrows from high; half of 2^32
// gives it back.
inline uint64_t packed(int32_t high, int32_t low) {
  return (uint64_t{static_cast<uint32_t>(high)} << 32) + static_cast<uint64_t>(int64_t{low});
}
inline int32_t low(uint64_t word) { return static_cast<int32_t>(static_cast<uint32_t>(word)); }
inline int32_t high(uint64_t word) { return static_cast<int32_t>((word + 0x80000000u) >> 32); }

// The bin codes of columns in groups: codes of row i and group j at [(j * n_rows + i) * width].
struct GroupedBins {
  const void* codes;  // uint8 or uint16
  bool wide;          // uint16
  int64_t n_rows, n_features, width;

  int64_t n_groups() const { return (n_features + width - 1) / width; }
  int64_t features_of(int64_t group) const { return std::min(width, n_features - group * width); }
};

// Where cells lie: [slot][feature][code][P]. A slot of a group is contiguous.
struct TableShape {
  int64_t n_words;        // P
  int64_t feature_words;  // a line more than the codes take, or equal codes of all features share a cache set
  int64_t slot_words;
  int64_t spill;          // a uint8 code beyond n_codes is not looked at: it adds to another cell, or after the last

  TableShape(int64_t n_codes, int64_t n_statistics, int64_t width, bool wide)
      : n_words((n_statistics + 1) / 2),
        feature_words((n_codes + kLine) * n_words),
        slot_words(width * feature_words),
        spill(wide ? 0 : std::max<int64_t>(0, 256 - n_codes) * n_words) {}

  int64_t words_for(int64_t n_slots) const { return n_slots * slot_words + spill; }
};

namespace internal {

// How many rows ahead codes are asked for: the first rows of few are not, but those of many would come too late.
inline int64_t prefetch_distance(int64_t n) { return std::clamp<int64_t>(n / 16, 16, 128); }

// Adds n rows to the tables of F features: rows[i] of the codes, with the i-th value. All rows in turn if rows is null.
template <int F, typename Code, bool kInTurn>
void add_single_words(const Code* codes, int64_t width, const RowNumber* rows, int64_t n, const uint64_t* values,
                      uint64_t* table, int64_t feature_words, uint32_t max_code) {
  const int64_t ahead = prefetch_distance(n);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = kInTurn ? i : rows[i];
    if (!kInTurn) __builtin_prefetch(codes + width * rows[std::min(i + ahead, n - 1)]);
    const uint64_t value = values[i];
    const Code* here = codes + width * row;
#pragma GCC unroll 8
    for (int j = 0; j < F; ++j) {
      const uint32_t code = sizeof(Code) > 1 ? std::min<uint32_t>(here[j], max_code) : here[j];
      table[j * feature_words + code] += value;
    }
  }
}

// Does so where a cell has several words: P of them, or n_words where P is 0.
template <int P, typename Code>
void add_many_words(const Code* codes, int64_t width, int64_t n_features, const RowNumber* rows, int64_t n,
                    const uint64_t* values, uint64_t* table, int64_t feature_words, int64_t n_words, uint32_t max_code) {
  const int64_t words = P ? P : n_words, ahead = prefetch_distance(n);
  for (int64_t i = 0; i < n; ++i) {
    if (rows) __builtin_prefetch(codes + width * rows[std::min(i + ahead, n - 1)]);
    const Code* here = codes + width * (rows ? rows[i] : i);
    const uint64_t* value = values + i * words;
    for (int64_t j = 0; j < n_features; ++j) {
      const uint32_t code = sizeof(Code) > 1 ? std::min<uint32_t>(here[j], max_code) : here[j];
      uint64_t* cell = table + j * feature_words + code * words;
      for (int64_t p = 0; p < words; ++p) cell[p] += value[p];
    }
  }
}

template <int F, typename Code>
void add_group(int64_t n_features, const Code* codes, int64_t width, const RowNumber* rows, int64_t n,
               const uint64_t* values, uint64_t* table, const TableShape& shape, uint32_t max_code) {
  if constexpr (F == 0) {
    return;
  } else if (n_features != F) {
    add_group<F - 1>(n_features, codes, width, rows, n, values, table, shape, max_code);
  } else if (rows) {
    add_single_words<F, Code, false>(codes, width, rows, n, values, table, shape.feature_words, max_code);
  } else {
    add_single_words<F, Code, true>(codes, width, rows, n, values, table, shape.feature_words, max_code);
  }
}

// Calls work with n as a constant, for the compiler to unroll loops by, from 2 to P; with 0 for any other.
template <int P, typename Work>
void with_words(int64_t n, const Work& work) {
  if constexpr (P < 2)
    work(std::integral_constant<int, 0>());
  else if (n == P)
    work(std::integral_constant<int, P>());
  else
    with_words<P - 1>(n, work);
}

template <typename Code>
void add_rows_of(const GroupedBins& bins, int64_t group, int64_t first_row, const RowNumber* rows, int64_t n,
                 const uint64_t* values, uint64_t* table, const TableShape& shape, int64_t n_codes) {
  const Code* codes = static_cast<const Code*>(bins.codes) + (group * bins.n_rows + first_row) * bins.width;
  const uint32_t max_code = static_cast<uint32_t>(n_codes);  // the line after the last code
  const int64_t n_features = bins.features_of(group);
  if (shape.n_words == 1)
    add_group<kGroup>(n_features, codes, bins.width, rows, n, values, table, shape, max_code);
  else
    with_words<8>(shape.n_words, [&](auto words) {
      add_many_words<words>(codes, bins.width, n_features, rows, n, values, table, shape.feature_words, shape.n_words,
                            max_code);
    });
}

// Adds n rows, numbered from `codes` and `values` on (or all in turn if rows is null), to the table of one feature.
template <int P, typename Code>
void add_to_feature(const Code* codes, int64_t width, const RowNumber* rows, int64_t n, const uint64_t* values,
                    uint64_t* table, int64_t n_words, uint32_t max_code) {
  const int64_t words = P ? P : n_words;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = rows ? rows[i] : i;
    const uint64_t* value = values + row * words;
    uint64_t* cell = table + std::min<uint32_t>(codes[row * width], max_code) * words;
    for (int64_t p = 0; p < words; ++p) cell[p] += value[p];
  }
}

}  // namespace internal

// Adds n rows, given by their numbers from first_row on (or all in turn if rows is null), to a table of one feature
// alone; `values` are those of all rows from first_row on.
inline void add_rows_to_feature(const GroupedBins& bins, int64_t feature, int64_t first_row, const RowNumber* rows,
                                int64_t n, const uint64_t* values, uint64_t* table, const TableShape& shape,
                                int64_t n_codes) {
  const int64_t first = (feature / bins.width * bins.n_rows + first_row) * bins.width + feature % bins.width;
  const uint32_t max_code = static_cast<uint32_t>(n_codes);  // a cell that nobody reads
  internal::with_words<8>(shape.n_words, [&](auto words) {
    if (bins.wide)
      internal::add_to_feature<words>(static_cast<const uint16_t*>(bins.codes) + first, bins.width, rows, n, values,
                                      table, shape.n_words, max_code);
    else
      internal::add_to_feature<words>(static_cast<const uint8_t*>(bins.codes) + first, bins.width, rows, n, values,
                                      table, shape.n_words, max_code);
  });
}

// Adds n rows, given by their numbers from first_row on (or all in turn if rows is null), to a slot of a group.
inline void add_rows(const GroupedBins& bins, int64_t group, int64_t first_row, const RowNumber* rows, int64_t n,
                     const uint64_t* values, uint64_t* table, const TableShape& shape, int64_t n_codes) {
  if (bins.wide)
    internal::add_rows_of<uint16_t>(bins, group, first_row, rows, n, values, table, shape, n_codes);
  else
    internal::add_rows_of<uint8_t>(bins, group, first_row, rows, n, values, table, shape, n_codes);
}

}  // namespace jboost

#endif  // JBOOST_HISTOGRAM_TABLES_H_
