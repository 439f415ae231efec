// The smallest key of each group whose cumulative mass reaches a rank, as in quantile.py: digit by digit, highest first.

#ifndef JBOOST_FIXED_POINT_SELECT_H_
#define JBOOST_FIXED_POINT_SELECT_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "../_runtime/parallel.h"
#include "../_runtime/scratch.h"

namespace jboost {

template <typename Key, typename Mass>
struct Selection {
  const Key* key;        // [n]
  const Mass* mass;      // [n]: non-negative
  const int32_t* group;  // [n], or null for one group of all; rows of no group do not count
  int64_t n_rows, n_groups;
};

namespace internal {

// All rows are looked at for the first digit, and again to keep those that have it, of which there are few.
template <typename Key, typename Mass, bool kGrouped>
class Selector {
 public:
  Selector(const Selection<Key, Mass>& p, const Pool& pool, std::vector<int64_t> ranks)
      : p_(p), digit_bits_(digit_bits(p.n_groups)), n_blocks_((p.n_rows + kRows - 1) / kRows),
        n_workers_(std::min(pool.workers_for(2 * p.n_rows), 1 + p.n_rows / n_cells())), sums_(n_workers_ * n_cells()),
        ranks_(std::move(ranks)), kept_(n_blocks_), crew_(pool, n_workers_) {
    rows_ = reinterpret_cast<uint32_t*>(scratch_.get((p.n_rows + 1) / 2 + 1));
  }

  void select(Key* found) {
    std::fill(found, found + p_.n_groups, Key{0});
    for (int64_t low = kKeyBits, high; low > 0;) {
      high = low;
      low = std::max<int64_t>(0, low - digit_bits_);
      const Digit digit{low, (Key{1} << (high - low)) - 1};
      std::fill(sums_.begin(), sums_.end(), 0);
      crew_.run(n_blocks_, [&](int64_t block, int64_t worker) {
        int64_t* const sums = sums_.data() + worker * n_cells();
        if (high == kKeyBits) return add_all(block, digit, sums);
        keep(block, high + digit_bits_ >= kKeyBits, high, found);
        add_kept(block, digit, sums);
      });
      for (int64_t group = 0; group < p_.n_groups; ++group) found[group] = narrowed(group, found[group], high - low);
    }
  }

 private:
  static constexpr int64_t kKeyBits = 8 * sizeof(Key), kRows = 1 << 14;
  struct Digit {
    int64_t low;
    Key mask;
  };

  // The tables of all groups stay in the cache.
  static int64_t digit_bits(int64_t n_groups) {
    int64_t bits = 11;
    while (bits > 4 && n_groups << bits > 1 << 14) --bits;
    return bits;
  }
  int64_t n_cells() const { return p_.n_groups << digit_bits_; }
  int64_t first_row(int64_t block) const { return block * kRows; }
  int64_t rows_of(int64_t block) const { return std::min(kRows, p_.n_rows - first_row(block)); }
  int64_t group_of(int64_t row) const { return kGrouped ? static_cast<uint32_t>(p_.group[row]) : 0; }
  void add(int64_t row, const Digit& digit, int64_t* sums) const {
    sums[(group_of(row) << digit_bits_) + static_cast<int64_t>(p_.key[row] >> digit.low & digit.mask)] += p_.mass[row];
  }

  void add_all(int64_t block, const Digit& digit, int64_t* sums) const {
    for (int64_t row = first_row(block); row < first_row(block) + rows_of(block); ++row)
      if (group_of(row) < p_.n_groups) add(row, digit, sums);
  }
  void add_kept(int64_t block, const Digit& digit, int64_t* sums) const {
    for (int64_t i = 0; i < kept_[block]; ++i) add(rows_[first_row(block) + i], digit, sums);
  }
  // Keeps the rows whose key begins as what was found for their group, of all or of those kept before.
  void keep(int64_t block, bool of_all, int64_t high, const Key* found) {
    const int64_t first = first_row(block), n = of_all ? rows_of(block) : kept_[block];
    uint32_t* const rows = rows_ + first;
    int64_t kept = 0;
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t row = of_all ? static_cast<uint32_t>(first + i) : rows[i];
      const int64_t group = group_of(row);
      rows[kept] = row;  // it is written over if it is not kept: no branch to be guessed
      kept += group < p_.n_groups && p_.key[row] >> high == found[group];
    }
    kept_[block] = kept;
  }

  // Adds a digit to what was found: the first at which the rank is reached, 0 if it never is.
  Key narrowed(int64_t group, Key found, int64_t bits) {
    int64_t below = 0;
    for (int64_t digit = 0; digit < int64_t{1} << bits; ++digit) {
      int64_t upto = below;
      for (int64_t worker = 0; worker < n_workers_; ++worker)
        upto += sums_[worker * n_cells() + (group << digit_bits_) + digit];
      if (upto >= ranks_[group]) {
        ranks_[group] -= below;
        return static_cast<Key>(found << bits | static_cast<Key>(digit));
      }
      below = upto;
    }
    return static_cast<Key>(found << bits);
  }

  const Selection<Key, Mass>& p_;
  const int64_t digit_bits_, n_blocks_, n_workers_;
  std::vector<int64_t> sums_;   // [workers][groups][digits]
  std::vector<int64_t> ranks_;  // less the mass of smaller keys
  std::vector<int64_t> kept_;   // rows of each block
  Scratch scratch_;
  uint32_t* rows_ = nullptr;  // [n]: those kept, by block
  Crew crew_;
};

}  // namespace internal

// Throws std::bad_alloc.
template <typename Key, typename Mass>
void select(const Selection<Key, Mass>& selection, const Pool& pool, std::vector<int64_t> ranks, Key* found) {
  if (selection.group)
    internal::Selector<Key, Mass, true>(selection, pool, std::move(ranks)).select(found);
  else
    internal::Selector<Key, Mass, false>(selection, pool, std::move(ranks)).select(found);
}

}  // namespace jboost

#endif  // JBOOST_FIXED_POINT_SELECT_H_
