// Scores of binned rows for the cores of a CPU; plain C++17 with the vectors of GCC and Clang, so that it can be tested
// without XLA.
//
// Rows come in blocks whose codes and scores stay in the first-level cache while all trees pass. Each score is summed
// in the order of the rounds, as in xla.py, and has the same bits.

#ifndef JBOOST_SCORING_SCORE_H_
#define JBOOST_SCORING_SCORE_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "../../_runtime/parallel.h"
#include "../../_runtime/simd.h"
#include "leaves.h"
#include "plan.h"

namespace jboost {
namespace internal {

template <typename T, typename Leaf>
JBOOST_INLINE void add_leaves(const T* table, int64_t, const Leaf* leaf, int64_t rows, T* __restrict sum) {
  for (int64_t i = 0; i < rows; ++i) sum[i] += table[leaf[i]];
}

// Adds all rounds to the scores [k, rows] of a block.
template <int kBytes, typename T, typename Code, typename Leaf, typename Add>
JBOOST_INLINE void add_rounds(const Plan<T>& plan, const Code* codes, int64_t rows, Leaf* leaf, T* score, Add add) {
  const Scoring<T>& p = plan.p;
  const int64_t n_tables = p.n_outputs / p.n_trees;
  for (int64_t tree = 0; tree < p.n_rounds * p.n_trees; ++tree) {
    const Split* splits = plan.splits.data() + tree * p.n_slots;
    bool walks = true;
    if constexpr (sizeof(Code) == sizeof(Leaf)) {  // else a leaf number may not fit a code
      walks = !p.symmetric && (p.depth > kMostComparedLevels || plan.has_sets[tree]);
      if (p.symmetric)
        find_symmetric<kBytes>(splits, p.depth, plan.sets.data(), p.n_words, codes, rows, leaf);
      else if (!walks)
        find_by_comparing<kBytes>(splits, p.depth, codes, rows, leaf);
    }
    if (walks) find_by_walking(splits, p.symmetric, p.depth, plan.sets.data(), p.n_words, codes, rows, leaf);
    for (int64_t j = 0; j < n_tables; ++j)
      add(plan.tables + (tree * n_tables + j) * plan.n_leaves, plan.n_leaves, leaf, rows,
          score + (tree % p.n_trees + j) * rows);
  }
}

// Compiled for several instruction sets, each with the vectors that it is best at; the processor decides.
#if defined(__x86_64__)
#define JBOOST_WIDE __attribute__((target("avx2,bmi2,avx512f,avx512bw,avx512dq,avx512vl")))
#define JBOOST_AVX2 __attribute__((target("avx2,bmi2")))

// A table of 64 leaves fits four registers, and a permutation of those is faster than loads.
template <typename Leaf>
JBOOST_WIDE void add_few_leaves(const float* table, int64_t n_leaves, const Leaf* leaf, int64_t rows, float* sum) {
  __m512 part[4];
  for (int i = 0; i < 4; ++i) {
    const int64_t n = std::clamp<int64_t>(n_leaves - 16 * i, 0, 16);
    part[i] = _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), n > 0 ? table + 16 * i : table);
  }
  for (int64_t i = 0; i < rows; i += 16) {
    __m512i at;
    if constexpr (sizeof(Leaf) == 1)
      at = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(leaf + i)));
    else
      at = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(leaf + i)));
    const __m512 low = _mm512_permutex2var_ps(part[0], at, part[1]);
    const __m512 high = _mm512_permutex2var_ps(part[2], at, part[3]);
    const __m512 value = _mm512_mask_blend_ps(_mm512_test_epi32_mask(at, _mm512_set1_epi32(32)), low, high);
    _mm512_storeu_ps(sum + i, _mm512_add_ps(_mm512_loadu_ps(sum + i), value));
  }
}

struct AddWide {
  template <typename T, typename Leaf>
  void operator()(const T* table, int64_t n_leaves, const Leaf* leaf, int64_t rows, T* sum) const {
    if constexpr (sizeof(T) == 4)
      if (n_leaves <= 64) return add_few_leaves(table, n_leaves, leaf, rows, sum);
    add_leaves(table, n_leaves, leaf, rows, sum);
  }
};

template <typename T, typename Code, typename Leaf>
JBOOST_WIDE void add_rounds_wide(const Plan<T>& plan, const Code* codes, int64_t rows, Leaf* leaf, T* score) {
  add_rounds<64>(plan, codes, rows, leaf, score, AddWide());
}

template <typename T, typename Code, typename Leaf>
JBOOST_AVX2 void add_rounds_avx2(const Plan<T>& plan, const Code* codes, int64_t rows, Leaf* leaf, T* score) {
  add_rounds<32>(plan, codes, rows, leaf, score, add_leaves<T, Leaf>);
}

#endif

inline int longest_vector() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) {
    const bool is_wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return is_wide ? 64 : 32;
  }
#endif
  return 16;
}

// A variable, so that a test can have all versions.
inline int& vector_bytes() {
  static int bytes = longest_vector();
  return bytes;
}

template <typename T, typename Code, typename Leaf>
void add_rounds_anywhere(const Plan<T>& plan, const Code* codes, int64_t rows, Leaf* leaf, T* score) {
#if defined(__x86_64__)
  if (vector_bytes() == 64) return add_rounds_wide(plan, codes, rows, leaf, score);
  if (vector_bytes() == 32) return add_rounds_avx2(plan, codes, rows, leaf, score);
#endif
  add_rounds<16>(plan, codes, rows, leaf, score, add_leaves<T, Leaf>);
}

struct alignas(64) Line {
  char bytes[64];
};

// Memory of one worker, for the largest block.
template <typename T>
struct Memory {
  std::vector<Line> codes, leaf, score;

  explicit Memory(const Plan<T>& plan)
      : codes(lines(plan.block_rows * static_cast<int64_t>(plan.used.size() + 1) * (plan.p.wide_bins ? 2 : 1))),
        leaf(lines(plan.block_rows * 2)),
        score(lines(plan.block_rows * plan.p.n_outputs * static_cast<int64_t>(sizeof(T)))) {}
  static size_t lines(int64_t bytes) { return (bytes + sizeof(Line) - 1) / sizeof(Line); }
};

template <typename Code, typename T>
void copy_codes(const Plan<T>& plan, int64_t first, int64_t n, int64_t rows, Code* codes) {
  const int64_t n_used = static_cast<int64_t>(plan.used.size());
  for (int64_t j = 0; j < n_used; ++j) {
    const Code* from = static_cast<const Code*>(plan.p.bins) + plan.used[j] * plan.p.n_rows + first;
    std::copy(from, from + n, codes + j * rows);
    std::fill(codes + j * rows + n, codes + (j + 1) * rows, Code{0});
  }
  std::fill(codes + n_used * rows, codes + (n_used + 1) * rows, std::numeric_limits<Code>::max());
}

template <typename Code, typename Leaf, typename T>
void score_rows(const Plan<T>& plan, int64_t first, Memory<T>& memory) {
  const Scoring<T>& p = plan.p;
  const int64_t n = std::min(plan.block_rows, p.n_rows - first), k = p.n_outputs;
  const int64_t rows = (n + kRowStep - 1) / kRowStep * kRowStep;
  Code* codes = reinterpret_cast<Code*>(memory.codes.data());
  T* score = reinterpret_cast<T*>(memory.score.data());
  copy_codes(plan, first, n, rows, codes);
  for (int64_t j = 0; j < k; ++j)
    for (int64_t i = 0; i < rows; ++i) score[j * rows + i] = i < n ? p.start[(first + i) * k + j] : T{0};
  add_rounds_anywhere(plan, codes, rows, reinterpret_cast<Leaf*>(memory.leaf.data()), score);
  for (int64_t j = 0; j < k; ++j)
    for (int64_t i = 0; i < n; ++i) p.out[(first + i) * k + j] = score[j * rows + i];
}

template <typename T>
void score_block(const Plan<T>& plan, int64_t first, Memory<T>& memory) {
  if (plan.p.wide_bins) return score_rows<uint16_t, uint16_t>(plan, first, memory);
  if (plan.p.depth > 8) return score_rows<uint8_t, uint16_t>(plan, first, memory);
  score_rows<uint8_t, uint8_t>(plan, first, memory);
}

}  // namespace internal

// Sums the scores of all rows. It may throw std::bad_alloc.
template <typename T>
void score_rows(const Scoring<T>& p, const Pool& pool) {
  const internal::Plan<T> plan = internal::make_plan(p);
  const int64_t n_blocks = (p.n_rows + plan.block_rows - 1) / plan.block_rows;
  const int64_t work = p.n_rows * (p.n_rounds * p.n_trees * p.depth / 8 + p.n_features / 8 + 1);
  const int64_t workers = std::max<int64_t>(1, std::min(pool.workers_for(work), n_blocks));
  std::vector<internal::Memory<T>> memory(workers, internal::Memory<T>(plan));
  Crew(pool, workers).run(n_blocks, [&](int64_t block, int64_t worker) {
    internal::score_block(plan, block * plan.block_rows, memory[worker]);
  });
}

}  // namespace jboost

#endif  // JBOOST_SCORING_SCORE_H_
