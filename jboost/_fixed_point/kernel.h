// Floats as integers, and their sums by group, as in quantise.py and sums.py, operation by operation.

#ifndef JBOOST_FIXED_POINT_KERNEL_H_
#define JBOOST_FIXED_POINT_KERNEL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include "../_runtime/parallel.h"
#include "../_runtime/simd.h"

namespace jboost {

// Columns of floats; the numbers that quantise.py calls so.
template <typename T>
struct Columns {
  const T* values;  // [n, c]
  int64_t n_rows, n_columns;
};

namespace internal {

constexpr int kBits = 30;
constexpr int64_t kBlock = 4096;  // rows
constexpr int64_t kWidth = 64;    // values that are worked on together
constexpr int64_t kBuffered = 1 << 10;  // words, about, in which a worker splits values: they stay in its first-level cache
constexpr int64_t kCopies = 4;    // of the sums by group, unless there are many
constexpr int64_t kManySums = 4096;

// The largest e for which 2^e and 2^-e are both normal.
template <typename T>
constexpr int max_power = std::numeric_limits<T>::max_exponent - 2;

template <typename T>
using Word = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

inline int ceil_log2(int64_t count) {
  int result = 0;
  while (int64_t{1} << result < count) ++result;
  return result;
}

// Of a limb after the first: so many that no sum of as many values overflows.
inline int32_t bits_of_limb(int32_t count) { return std::clamp(31 - ceil_log2(count), 1, kBits); }

// Columns repeat with this period in the flat array: whole vectors of them.
inline int64_t period(int64_t n_columns) { return std::lcm(n_columns, kWidth); }

// Calls body(first, count) for whole periods and for what is left.
template <typename Body>
JBOOST_INLINE void by_period(int64_t n, int64_t width, const Body& body) {
  int64_t i = 0;
  for (; i + width <= n; i += width) body(i, width);
  if (i < n) body(i, n - i);
}

// largest[j] = the largest bits of |v| in the flat column j of the period.
template <typename T>
JBOOST_INLINE void largest_bits(const T* values, int64_t n, int64_t width, Word<T>* largest) {
  constexpr Word<T> magnitude = std::numeric_limits<Word<T>>::max();  // all bits but the sign
  by_period(n, width, [&](int64_t i, int64_t m) JBOOST_INLINE_LAMBDA {
    for (int64_t j = 0; j < m; ++j) {
      Word<T> bits;
      std::memcpy(&bits, values + i + j, sizeof bits);
      bits &= magnitude;
      largest[j] = bits > largest[j] ? bits : largest[j];
    }
  });
}

// low[j] + high[j] * 2^15 += round(|v| * factor[j]), counts[j] += v != 0. No sum over a block overflows.
constexpr int kHalf = kBits / 2;
static_assert(kBlock < int64_t{1} << (31 - kHalf - 1), "magnitudes are at most 2^30");
template <typename T>
JBOOST_INLINE void sum_magnitudes(const T* values, int64_t n, int64_t width, const T* factor, int32_t* low,
                                  int32_t* high, int32_t* counts) {
  by_period(n, width, [&](int64_t i, int64_t m) JBOOST_INLINE_LAMBDA {
    for (int64_t j = 0; j < m; ++j) {
      const T value = factor[j] == 0 ? T{0} : values[i + j];  // a column that is not finite counts as 0
      const int32_t magnitude = static_cast<int32_t>(std::nearbyint(std::abs(value) * factor[j]));
      low[j] += magnitude & ((1 << kHalf) - 1);
      high[j] += magnitude >> kHalf;
      counts[j] += value != 0;
    }
  });
}

// Two limbs to a word of 64 bits, the first in its high half: their sums are apart as long as each fits in 32 bits.
constexpr int64_t kHigh = int64_t{1} << 32;
template <int kLimbs>
constexpr int packed_words = (kLimbs + 1) / 2;

// The two limbs of a word.
JBOOST_INLINE void unpack(int64_t word, int32_t* limbs) {
  limbs[1] = static_cast<int32_t>(static_cast<uint32_t>(word));
  limbs[0] = static_cast<int32_t>((word - limbs[1]) / kHigh);
}

// What limbs stand for.
template <typename T, int kLimbs>
T total_of(const int32_t* limbs, int32_t bits, T factor) {
  const T step = std::ldexp(T{1}, -bits);
  T total = static_cast<T>(limbs[kLimbs - 1]);
  for (int limb = kLimbs - 2; limb >= 0; --limb) total = static_cast<T>(limbs[limb]) + total * step;
  return total / factor;
}

// Calls use(limb, place, integer) with the limbs of each value: the nearest integer to value * scale, then that of what is
// left times 2^bits, ...
template <int kLimbs, typename T, typename Use>
JBOOST_INLINE void split_values(const T* values, int64_t n, int64_t width, const T* scale, const T* step, const Use& use) {
  by_period(n, width, [&](int64_t i, int64_t m) JBOOST_INLINE_LAMBDA {
    for (int64_t j = 0; j < m; ++j) {
      T rest = scale[j] == 0 ? T{0} : values[i + j] * scale[j];
      for (int limb = 0; limb < kLimbs; ++limb) {
        const T nearest = std::nearbyint(rest);
        use(limb, i, j, static_cast<int32_t>(nearest));
        rest = (rest - nearest) * step[j];
      }
    }
  });
}

// sums[limb][j] += the limbs of the flat column j of the period.
template <int kLimbs, typename T>
JBOOST_INLINE void add_all(const T* values, int64_t n, int64_t width, const T* scale, const T* step, int32_t* sums) {
  split_values<kLimbs>(values, n, width, scale, step, [=](int limb, int64_t, int64_t j, int32_t integer)
                                                          JBOOST_INLINE_LAMBDA { sums[limb * width + j] += integer; });
}

// sums[copy][group][column][word] += the limbs of each value, two packed in a word: one addition serves both, and rows that
// follow each other add to different copies, so that none waits for the one before. The last group takes in rows of none.
template <int kLimbs, typename T>
JBOOST_INLINE void add_by_group(const T* values, const int32_t* group, int64_t rows, int64_t n_columns, int64_t width,
                                const T* scale, const T* step, int64_t n_groups, int64_t n_copies, int64_t* buffer,
                                int64_t* sums) {
  constexpr int kWords = packed_words<kLimbs>;
  const int64_t n = rows * n_columns, stride = (n_groups + 1) * n_columns * kWords;
  split_values<kLimbs>(values, n, width, scale, step,
                       [=](int limb, int64_t i, int64_t j, int32_t integer) JBOOST_INLINE_LAMBDA {
                         int64_t& word = buffer[limb / 2 * n + i + j];
                         word = limb % 2 == 0 ? static_cast<int64_t>(integer) * kHigh : word + integer;
                       });
  const auto add = [=](int64_t i, int64_t copy) JBOOST_INLINE_LAMBDA {
    const int64_t place = std::min<int64_t>(static_cast<uint32_t>(group[i]), n_groups) * n_columns * kWords;
    int64_t* sum = sums + copy * stride + place;
    for (int64_t c = 0; c < n_columns; ++c)
      for (int word = 0; word < kWords; ++word) sum[c * kWords + word] += buffer[word * n + i * n_columns + c];
  };
  int64_t i = 0;
  for (; i + n_copies <= rows; i += n_copies)
    for (int64_t copy = 0; copy < n_copies; ++copy) add(i + copy, copy);
  for (; i < rows; ++i) add(i, 0);
}

}  // namespace internal

// One version for every instruction set and width of vectors: the loader takes the best that the processor has.
#define JBOOST_DISPATCH(T, LIMBS)                                                                                     \
  JBOOST_CLONES static void largest_bits(const T* values, int64_t n, int64_t width, internal::Word<T>* largest) {     \
    if (width == internal::kWidth) return internal::largest_bits<T>(values, n, internal::kWidth, largest);            \
    internal::largest_bits<T>(values, n, width, largest);                                                             \
  }                                                                                                                   \
  JBOOST_CLONES static void sum_magnitudes(const T* values, int64_t n, int64_t width, const T* factor, int32_t* low,  \
                                           int32_t* high, int32_t* counts) {                                         \
    if (width == internal::kWidth)                                                                                    \
      return internal::sum_magnitudes<T>(values, n, internal::kWidth, factor, low, high, counts);                     \
    internal::sum_magnitudes<T>(values, n, width, factor, low, high, counts);                                         \
  }                                                                                                                   \
  JBOOST_CLONES static void add_all(const T* values, int64_t n, int64_t width, const T* scale, const T* step,         \
                                    int32_t* sums) {                                                                  \
    if (width == internal::kWidth) return internal::add_all<LIMBS, T>(values, n, internal::kWidth, scale, step, sums); \
    internal::add_all<LIMBS, T>(values, n, width, scale, step, sums);                                                 \
  }                                                                                                                   \
  JBOOST_CLONES static void add_by_group(const T* values, const int32_t* group, int64_t rows, int64_t n_columns,      \
                                         int64_t width, const T* scale, const T* step, int64_t n_groups,              \
                                         int64_t n_copies, int64_t* buffer, int64_t* sums) {                          \
    if (n_columns == 1 && n_copies == internal::kCopies)                                                              \
      return internal::add_by_group<LIMBS, T>(values, group, rows, 1, internal::kWidth, scale, step, n_groups,        \
                                              internal::kCopies, buffer, sums);                                       \
    if (n_columns == 2 && n_copies == internal::kCopies)                                                              \
      return internal::add_by_group<LIMBS, T>(values, group, rows, 2, internal::kWidth, scale, step, n_groups,        \
                                              internal::kCopies, buffer, sums);                                       \
    internal::add_by_group<LIMBS, T>(values, group, rows, n_columns, width, scale, step, n_groups, n_copies, buffer,  \
                                     sums);                                                                           \
  }
JBOOST_DISPATCH(float, 2)
JBOOST_DISPATCH(double, 3)
#undef JBOOST_DISPATCH

template <typename T>
constexpr int n_limbs = sizeof(T) == 4 ? 2 : 3;  // beyond the precision of the floats

// Columns in blocks of rows, that are shared out.
template <typename T>
class FixedPoint {
 public:
  FixedPoint(const Columns<T>& columns, const Pool& pool)
      : columns_(columns), n_workers_(pool.workers_for(columns.n_rows * columns.n_columns)), crew_(pool, n_workers_),
        width_(internal::period(columns.n_columns)),
        n_blocks_((columns.n_rows + internal::kBlock - 1) / internal::kBlock) {}

  // The factor of each column, NaN if it is not finite, and how many of its values are not 0.
  void find_scale(T* factors, int32_t* counts) {
    const int64_t c = columns_.n_columns;
    const std::vector<Magnitudes> found = magnitudes();
    std::vector<T> units(c);
    bool are_certain = true;
    for (int64_t column = 0; column < c; ++column) {
      units[column] = unit_of(found[column].largest);
      are_certain = are_certain && (units[column] == 0 || is_certain(found[column]));
    }
    const std::vector<int64_t> exact = are_certain ? std::vector<int64_t>() : sums_of_magnitudes(units);
    for (int64_t column = 0; column < c; ++column) {
      factors[column] = std::numeric_limits<T>::quiet_NaN();
      counts[column] = 0;
      if (units[column] == 0) continue;
      const int shift = shift_of(found[column].largest);
      const int64_t sum =
          are_certain ? static_cast<int64_t>(std::ldexp(found[column].estimate, shift)) : exact[column];
      const int exponent = std::clamp(internal::kBits - internal::ceil_log2(sum) + shift, -internal::max_power<T>,
                                      internal::max_power<T>);
      factors[column] = std::ldexp(T{1}, sum == 0 ? 0 : exponent);
      counts[column] = found[column].count;
    }
  }

  // Sums of the limbs by group, [groups, c, limbs], all rows in one if group is null, given the factor of each column
  // and the bits of its limbs after the first.
  void sum_by_group(const int32_t* group, int64_t n_groups, const T* factors, const int32_t* bits, int32_t* out) {
    const int64_t c = columns_.n_columns;
    std::vector<T> finite(factors, factors + c), next(c);
    for (int64_t column = 0; column < c; ++column) {
      if (std::isnan(finite[column])) finite[column] = 0;
      next[column] = std::ldexp(T{1}, bits[column]);
    }
    const std::vector<T> scale = over_period(finite.data()), step = over_period(next.data());
    if (!group) return sum_all(scale, step, out);
    constexpr int64_t words = internal::packed_words<n_limbs<T>>;
    const int64_t n_copies = (n_groups + 1) * c * words > internal::kManySums ? 1 : internal::kCopies;
    const int64_t n_periods = std::max<int64_t>(1, internal::kBuffered / (width_ * words));
    const int64_t most_rows = std::min(internal::kBlock, n_periods * (width_ / c));
    const int64_t stride = (n_groups + 1) * c * words, n_buffer = most_rows * c * words;
    std::vector<int64_t> sums(n_workers_ * n_copies * stride, 0), buffers(n_workers_ * n_buffer);
    crew_.run(n_blocks_, [&](int64_t block, int64_t worker) {
      const int64_t last = first_row(block) + rows_of(block);
      for (int64_t row = first_row(block); row < last; row += most_rows)
        add_by_group(columns_.values + row * c, group + row, std::min(most_rows, last - row), c, width_, scale.data(),
                     step.data(), n_groups, n_copies, buffers.data() + worker * n_buffer,
                     sums.data() + worker * n_copies * stride);
    });
    for (int64_t i = 0; i < n_groups * c; ++i)
      for (int64_t word = 0; word < words; ++word) {
        int64_t packed = 0;
        for (int64_t copy = 0; copy < n_workers_ * n_copies; ++copy) packed += sums[copy * stride + i * words + word];
        int32_t limbs[2];
        internal::unpack(packed, limbs);
        for (int64_t limb = 2 * word; limb < std::min(2 * word + 2, int64_t{n_limbs<T>}); ++limb)
          out[i * n_limbs<T> + limb] = limbs[limb % 2];
      }
  }

  // The sums themselves [groups, c], from the factor of each column and how many of its values are not 0.
  void sum(const int32_t* group, int64_t n_groups, const T* factors, const int32_t* counts, T* out) {
    const int64_t c = columns_.n_columns;
    std::vector<int32_t> bits(c), limbs(n_groups * c * n_limbs<T>);
    for (int64_t column = 0; column < c; ++column) bits[column] = internal::bits_of_limb(counts[column]);
    sum_by_group(group, n_groups, factors, bits.data(), limbs.data());
    for (int64_t i = 0; i < n_groups * c; ++i)
      out[i] = internal::total_of<T, n_limbs<T>>(limbs.data() + i * n_limbs<T>, bits[i % c], factors[i % c]);
  }

 private:
  // What is found of a column in one pass.
  struct Magnitudes {
    internal::Word<T> largest = 0;  // bits
    double estimate = 0;            // of their sum: exact but for the rounding of each in its block, and of sums
    int32_t count = 0;              // of values that are not 0

    void add(const Magnitudes& other) {
      largest = std::max(largest, other.largest);
      estimate += other.estimate;
      count += other.count;
    }
  };

  // The exponent of the units in which magnitudes are integers below 2^30, given the bits of the largest.
  static int shift_of(internal::Word<T> largest) {
    const int biased = static_cast<int>(largest >> (std::numeric_limits<T>::digits - 1));
    const int exponent = std::max(biased - (std::numeric_limits<T>::max_exponent - 2), -internal::max_power<T>);
    return std::min(internal::kBits - exponent, internal::max_power<T>);
  }
  // What that makes magnitudes be multiplied by; 0 where the largest is not finite.
  static T unit_of(internal::Word<T> largest) {
    T value;
    std::memcpy(&value, &largest, sizeof value);
    return std::isfinite(value) ? std::ldexp(T{1}, shift_of(largest)) : T{0};
  }
  // Whether the estimate rounds to the same power of two as the sum of magnitudes that are rounded in units of the column.
  bool is_certain(const Magnitudes& found) const {
    if (found.largest == 0) return true;
    const double sum = std::ldexp(found.estimate, shift_of(found.largest));
    const double off = static_cast<double>(columns_.n_rows) + 1 + sum * 1e-9;
    const bool is_normal = found.estimate > 1e-280 && found.estimate < 1e280;
    return is_normal && sum > 2 * off &&
           internal::ceil_log2(static_cast<int64_t>(sum - off)) == internal::ceil_log2(static_cast<int64_t>(sum + off));
  }

  // The sums of magnitudes of each column, in its units.
  std::vector<int64_t> sums_of_magnitudes(const std::vector<T>& units) {
    const std::vector<T> factor = over_period(units.data());
    std::vector<int32_t> halves(n_workers_ * 3 * width_);
    return by_column<int64_t>(
        1,
        [&](const T* values, int64_t n, int64_t worker, int64_t* result) {
          const int32_t* const low = halves_of_sums(values, n, factor.data(), halves.data() + worker * 3 * width_);
          for (int64_t j = 0; j < width_; ++j)
            result[j] += low[j] + (static_cast<int64_t>(low[width_ + j]) << internal::kHalf);
        });
  }
  // Low halves, high halves and counts of a block, of the flat columns of the period.
  const int32_t* halves_of_sums(const T* values, int64_t n, const T* factor, int32_t* halves) const {
    std::fill_n(halves, 3 * width_, 0);
    sum_magnitudes(values, n, width_, factor, halves, halves + width_, halves + 2 * width_);
    return halves;
  }

  // Each block is looked at twice while it is in the cache: for its largest magnitude, then for their sum.
  std::vector<Magnitudes> magnitudes() {
    const int64_t c = columns_.n_columns;
    std::vector<Magnitudes> found(n_workers_ * c);
    std::vector<internal::Word<T>> largest(n_workers_ * width_);
    std::vector<T> factors(n_workers_ * width_);
    std::vector<int32_t> halves(n_workers_ * 3 * width_);
    crew_.run(n_blocks_, [&](int64_t block, int64_t worker) {
      const T* const values = columns_.values + first_row(block) * c;
      const int64_t n = rows_of(block) * c;
      internal::Word<T>* const most = largest.data() + worker * width_;
      std::fill_n(most, width_, 0);
      largest_bits(values, n, width_, most);
      for (int64_t j = width_ - 1; j >= c; --j) most[j - c] = std::max(most[j - c], most[j]);
      T* const factor = factors.data() + worker * width_;
      for (int64_t j = 0; j < width_; ++j) factor[j] = j < c ? unit_of(most[j]) : factor[j - c];
      const int32_t* const low = halves_of_sums(values, n, factor, halves.data() + worker * 3 * width_);
      for (int64_t column = 0; column < c; ++column) {
        Magnitudes one{most[column]};
        for (int64_t j = column; j < width_; j += c) {
          const double sum = low[j] + static_cast<double>(low[width_ + j]) * (1 << internal::kHalf);
          one.estimate += factor[j] == 0 ? 0 : sum / factor[j];
          one.count += low[2 * width_ + j];
        }
        found[worker * c + column].add(one);
      }
    });
    for (int64_t i = c; i < n_workers_ * c; ++i) found[i % c].add(found[i]);
    return found;
  }

  void sum_all(const std::vector<T>& scale, const std::vector<T>& step, int32_t* out) {
    const auto sums = by_column<int32_t>(
        n_limbs<T>,
        [&](const T* values, int64_t n, int64_t, int32_t* result) {
          add_all(values, n, width_, scale.data(), step.data(), result);
        });
    for (int64_t column = 0; column < columns_.n_columns; ++column)
      for (int limb = 0; limb < n_limbs<T>; ++limb)
        out[column * n_limbs<T> + limb] = sums[limb * columns_.n_columns + column];
  }

  int64_t first_row(int64_t block) const { return block * internal::kBlock; }
  int64_t rows_of(int64_t block) const { return std::min(internal::kBlock, columns_.n_rows - first_row(block)); }

  std::vector<T> over_period(const T* of_column) const {
    std::vector<T> repeated(width_);
    for (int64_t j = 0; j < width_; ++j) repeated[j] = of_column[j % columns_.n_columns];
    return repeated;
  }
  // Runs work(values, n, worker, sums of the worker) over blocks; sums have a period of places, added up by column.
  template <typename R, typename Work>
  std::vector<R> by_column(int64_t n_results, const Work& work) {
    std::vector<R> parts(n_workers_ * n_results * width_, R{0});
    crew_.run(n_blocks_, [&](int64_t block, int64_t worker) {
      work(columns_.values + first_row(block) * columns_.n_columns, rows_of(block) * columns_.n_columns, worker,
           parts.data() + worker * n_results * width_);
    });
    std::vector<R> results(n_results * columns_.n_columns, R{0});
    for (size_t i = 0; i < parts.size(); ++i) {
      const int64_t place = static_cast<int64_t>(i) % (n_results * width_);
      results[place / width_ * columns_.n_columns + place % width_ % columns_.n_columns] += parts[i];
    }
    return results;
  }

  const Columns<T> columns_;
  const int64_t n_workers_;
  Crew crew_;
  const int64_t width_, n_blocks_;
};

// counts[j] = how many rows of group j are counted.
inline void count_by_group(const Pool& pool, const bool* counted, const int32_t* group, int64_t n_rows, int64_t n_groups,
                           int32_t* counts) {
  const int64_t n_workers = pool.workers_for(n_rows), stride = n_groups + 1;
  const int64_t n_copies = stride > internal::kManySums ? 1 : internal::kCopies;
  std::vector<int32_t> sums(n_workers * n_copies * stride, 0);
  Crew(pool, n_workers).run((n_rows + internal::kBlock - 1) / internal::kBlock, [&](int64_t block, int64_t worker) {
    int32_t* const own = sums.data() + worker * n_copies * stride;
    const int64_t first = block * internal::kBlock, end = std::min(first + internal::kBlock, n_rows);
    const auto place = [=](int64_t i) { return std::min<int64_t>(static_cast<uint32_t>(group[i]), n_groups); };
    int64_t i = first;
    if (n_copies == internal::kCopies)
      for (; i + internal::kCopies <= end; i += internal::kCopies)
        for (int64_t copy = 0; copy < internal::kCopies; ++copy) own[copy * stride + place(i + copy)] += counted[i + copy];
    for (; i < end; ++i) own[place(i)] += counted[i];
  });
  for (int64_t j = 0; j < n_groups; ++j) {
    counts[j] = 0;
    for (int64_t copy = 0; copy < n_workers * n_copies; ++copy) counts[j] += sums[copy * stride + j];
  }
}

}  // namespace jboost

#endif  // JBOOST_FIXED_POINT_KERNEL_H_
