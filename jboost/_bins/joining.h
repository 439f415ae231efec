// Two columns of codes as one of joint codes: the innermost step of finding bundles, as in joining.py.

#ifndef JBOOST_BINS_JOINING_H_
#define JBOOST_BINS_JOINING_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "../_runtime/parallel.h"

namespace jboost {

// Columns [n] with codes below n_first and n_second, at most 256 each.
struct Joining {
  const uint8_t *first, *second;
  int64_t n_rows, n_first, n_second, most;

  int64_t n_cells() const { return n_first * n_second; }
  int64_t cell(int64_t row) const { return first[row] * n_second + second[row]; }
};

namespace internal {

// Notes which pairs of codes the rows [start, stop) hold, and returns how many `seen` holds then.
inline int64_t note_pairs(const Joining& p, int64_t start, int64_t stop, uint8_t* seen) {
  for (int64_t row = start; row < stop; ++row) seen[p.cell(row)] = 1;
  int64_t count = 0;
  for (int64_t cell = 0; cell < p.n_cells(); ++cell) count += seen[cell];
  return count;
}

}  // namespace internal

// Writes the joint code of each row and the pair of each joint code, ascending: first * n_second + second. Returns how
// many there are, or 0, with nothing written, if they would be more than `most`. Throws std::bad_alloc.
inline int64_t join_codes(const Joining& p, uint8_t* joint, int32_t* pairs, const Pool& pool) {
  constexpr int64_t few_rows = 4096, step = 1 << 17;  // what most refusals take; rows between two counts
  const int64_t workers = pool.workers_for(p.n_rows), n_cells = p.n_cells();
  std::vector<uint8_t> memory(workers * n_cells, 0);
  const int64_t first_rows = std::min(p.n_rows, few_rows);
  if (internal::note_pairs(p, 0, first_rows, memory.data()) > p.most) return 0;
  Crew crew(pool, p.n_rows > few_rows ? workers : 1);
  std::atomic<bool> too_many{false};
  crew.run((p.n_rows - first_rows + step - 1) / step, [&](int64_t unit, int64_t worker) {
    const int64_t start = first_rows + unit * step;
    if (!too_many && internal::note_pairs(p, start, std::min(p.n_rows, start + step), &memory[worker * n_cells]) > p.most)
      too_many = true;
  });
  if (too_many) return 0;
  std::unique_ptr<uint8_t[]> code_of(new uint8_t[n_cells]);
  int64_t n_joint = 0;
  for (int64_t cell = 0; cell < n_cells; ++cell) {
    bool is_there = false;
    for (int64_t worker = 0; worker < workers; ++worker) is_there |= memory[worker * n_cells + cell] != 0;
    if (!is_there) continue;
    if (n_joint == p.most) return 0;
    code_of[cell] = static_cast<uint8_t>(n_joint);
    pairs[n_joint++] = static_cast<int32_t>(cell);
  }
  crew.run((p.n_rows + step - 1) / step, [&](int64_t unit, int64_t) {
    const int64_t stop = std::min(p.n_rows, (unit + 1) * step);
    for (int64_t row = unit * step; row < stop; ++row) joint[row] = code_of[p.cell(row)];
  });
  return n_joint;
}

}  // namespace jboost

#endif  // JBOOST_BINS_JOINING_H_
