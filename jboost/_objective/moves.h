// Scores moved by their leaves, and how large the loss of each row may be there.

#ifndef JBOOST_OBJECTIVE_MOVES_H_
#define JBOOST_OBJECTIVE_MOVES_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "../_runtime/parallel.h"
#include "../_runtime/simd.h"

namespace jboost {

// The rows of a round in leaves that are known, with the derivatives of their loss.
template <typename T>
struct Moves {
  const T* score;       // [n k]
  const int32_t* leaf;  // [n c]: for all outputs, or for each
  const T* leaf_value;  // [leaves k]
  const T *g, *h;       // [n k], times the weights and in units
  const T *value, *weight;       // [n]
  const T *unit_of_g, *unit_of_h;  // [k]
  T bound, typical, rounding;  // times h u^2; loss beside which a row's is rounded, and by how much of both
  int64_t n, k, c, n_leaves;
};

namespace internal {

constexpr int64_t kMoved = 4096;  // rows a unit of work
constexpr int64_t kInCache = 512;  // rows whose expected changes stay in the first-level cache

// expected[i] += what the parabola of output j, and more than it, says of the move of row i.
template <bool kOne, typename T>
JBOOST_INLINE void move_output(const Moves<T>& m, int64_t j, int64_t first, int64_t n, T* moved, T* move, T* expected) {
  const int64_t k = kOne ? 1 : m.k, c = kOne ? 1 : m.c;
  const uint32_t highest = static_cast<uint32_t>(m.n_leaves - 1);
  const int32_t* const leaf = m.leaf + first * c + (c == 1 ? 0 : j);
  const T *const score = m.score + first * k + j, *const g = m.g + first * k + j, *const h = m.h + first * k + j;
  T* const out = moved + first * k + j;
  const T unit_of_g = m.unit_of_g[j], bent = m.bound * m.unit_of_h[j];
  for (int64_t i = 0; i < n; ++i) move[i] = m.leaf_value[std::min(static_cast<uint32_t>(leaf[i * c]), highest) * k + j];
  for (int64_t i = 0; i < n; ++i) out[i * k] = score[i * k] + move[i];
  for (int64_t i = 0; i < n; ++i) expected[i] += (g[i * k] * unit_of_g + h[i * k] * bent * move[i]) * move[i];
}

template <bool kOne, typename T>
JBOOST_INLINE void move_rows(const Moves<T>& m, int64_t first, int64_t n, T* moved, T* most) {
  constexpr T infinity = std::numeric_limits<T>::infinity(), none = std::numeric_limits<T>::quiet_NaN();
  T move[kInCache], expected[kInCache] = {};
  for (int64_t j = 0; j < (kOne ? 1 : m.k); ++j) move_output<kOne>(m, j, first, n, moved, move, expected);
  const T *const value = m.value + first, *const weight = m.weight + first;
  for (int64_t i = 0; i < n; ++i) {
    const T change = expected[i] / weight[i];
    const T highest = value[i] + (change + m.rounding * (std::abs(value[i]) + m.typical));
    const T held = change < infinity ? highest : none;
    most[first + i] = weight[i] > 0 ? held : infinity;
  }
}

}  // namespace internal

#define JBOOST_DISPATCH(T)                                                                                    \
  JBOOST_CLONES static void move_rows(const Moves<T>& m, int64_t first, int64_t n, T* moved, T* most) {      \
    if (m.k == 1) return internal::move_rows<true, T>(m, first, n, moved, most);                             \
    internal::move_rows<false, T>(m, first, n, moved, most);                                                 \
  }
JBOOST_DISPATCH(float)
JBOOST_DISPATCH(double)
#undef JBOOST_DISPATCH

// moved [n k] and most [n]: infinite where a row does not count, NaN where floats do not hold what is expected.
template <typename T>
void move_scores(const Pool& pool, const Moves<T>& m, T* moved, T* most) {
  const int64_t n_workers = pool.workers_for(m.n * m.k);
  Crew(pool, n_workers).run((m.n + internal::kMoved - 1) / internal::kMoved, [&](int64_t block, int64_t) {
    const int64_t last = std::min((block + 1) * internal::kMoved, m.n);
    for (int64_t first = block * internal::kMoved; first < last; first += internal::kInCache)
      move_rows(m, first, std::min(internal::kInCache, last - first), moved, most);
  });
}

}  // namespace jboost

#endif  // JBOOST_OBJECTIVE_MOVES_H_
