// Random models of score.h against a walk down each tree, with every length of vector, on threads that start late.
// By hand, in the folder of the tests: g++ -std=c++17 -ffp-contract=off -pthread -I ../jboost fuzz_scoring.cpp && ./a.out

#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "_model/scoring/score.h"

namespace {

std::mt19937 generator(0);

int64_t draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(generator); }

// Exactly as long as the arrays, so that the address sanitizer sees every step outside.
template <typename Value, typename Draw>
std::vector<Value> fill(int64_t size, const Draw& draw_one) {
  std::vector<Value> values;
  for (int64_t i = 0; i < size; ++i) values.push_back(static_cast<Value>(draw_one()));
  values.shrink_to_fit();
  return values;
}

template <typename T>
struct Case {
  std::vector<uint8_t> narrow;
  std::vector<uint16_t> wide;
  std::vector<int32_t> feature, threshold;
  std::vector<uint8_t> missing_right, is_categorical;
  std::vector<uint32_t> sets;
  std::vector<T> leaf_value, start, out;
  jboost::Scoring<T> p;
  bool keeps_contract;  // every code has a bit in the category sets

  int64_t code(int64_t f, int64_t i) const { return p.wide_bins ? wide[f * p.n_rows + i] : narrow[f * p.n_rows + i]; }

  int64_t leaf(int64_t tree, int64_t i) const {
    int64_t node = 0;
    for (int64_t level = 0; level < p.depth; ++level) {
      const int64_t slot = tree * p.n_slots + (p.symmetric ? level : (int64_t{1} << level) - 1 + node);
      const int64_t f = std::clamp<int64_t>(feature[slot], 0, p.n_features - 1), c = code(f, i);
      bool right = c > threshold[slot];
      if (p.n_words > 0 && is_categorical[f])
        right = c == 0 ? missing_right[slot] : sets[slot * p.n_words + c / 32] >> (c % 32) & 1;
      else if (p.has_missing && c == 0)
        right = missing_right[slot];
      node = 2 * node + right;
    }
    return node;
  }
};

template <typename T>
Case<T> make_case() {
  Case<T> k;
  jboost::Scoring<T>& p = k.p;
  p.wide_bins = draw(0, 1);
  p.symmetric = draw(0, 1);
  p.has_missing = draw(0, 1);
  p.n_rows = draw(0, 9) ? draw(1, 300) : draw(1000, 2600);
  p.n_features = draw(0, 5) ? draw(1, 30) : draw(200, 400);
  p.n_rounds = draw(0, 4);
  p.depth = draw(0, 3) ? draw(0, 7) : draw(8, 10);
  p.n_outputs = draw(1, 3);
  p.n_trees = draw(0, 1) ? p.n_outputs : 1;
  p.n_slots = p.symmetric ? p.depth : (int64_t{1} << p.depth) - 1;
  p.n_words = draw(0, 1) ? 0 : draw(1, 9);
  k.keeps_contract = p.n_words == 0 || draw(0, 4);
  const int64_t largest = p.wide_bins ? 65535 : 255;
  const int64_t codes = p.n_words > 0 && k.keeps_contract ? std::min(largest, 32 * p.n_words - 1) : largest;
  const int64_t n_trees = p.n_rounds * p.n_trees, n_slots = n_trees * p.n_slots;
  const int64_t n_leaves = p.n_rounds * (int64_t{1} << p.depth) * p.n_outputs;
  const auto any_code = [&] { return draw(0, 9) ? draw(0, draw(1, codes)) : 0; };
  const auto bit = [] { return draw(0, 1); };
  if (p.wide_bins)
    k.wide = fill<uint16_t>(p.n_rows * p.n_features, any_code);
  else
    k.narrow = fill<uint8_t>(p.n_rows * p.n_features, any_code);
  k.feature = fill<int32_t>(n_slots, [&] { return draw(0, 99) ? draw(0, p.n_features - 1) : draw(-9, 999); });
  k.threshold = fill<int32_t>(n_slots, [&] { return draw(0, 9) ? draw(0, codes + 1) : draw(-70000, 70000); });
  k.missing_right = fill<uint8_t>(n_slots, bit);
  k.is_categorical = fill<uint8_t>(p.n_features, bit);
  k.sets = fill<uint32_t>(n_slots * p.n_words, [] { return draw(0, 4294967295); });
  k.leaf_value = fill<T>(n_leaves, [] { return draw(-1000, 1000) / 7.0; });
  k.start = fill<T>(p.n_rows * p.n_outputs, [] { return draw(-1000, 1000) / 3.0; });
  k.out.assign(p.n_rows * p.n_outputs, T{-1});
  return k;
}

template <typename T>
void check() {
  Case<T> k = make_case<T>();
  jboost::Scoring<T>& p = k.p;
  p.bins = p.wide_bins ? static_cast<const void*>(k.wide.data()) : k.narrow.data();
  p.feature = k.feature.data();
  p.threshold = k.threshold.data();
  p.missing_right = reinterpret_cast<const bool*>(k.missing_right.data());
  p.is_categorical = reinterpret_cast<const bool*>(k.is_categorical.data());
  p.categories_right = k.sets.data();
  p.leaf_value = k.leaf_value.data();
  p.start = k.start.data();
  p.out = k.out.data();
  std::vector<std::thread> threads;
  std::vector<std::function<void()>> late;
  const jboost::Pool pool{draw(1, 5),
                          [&](std::function<void()> task) {
                            if (draw(0, 3)) {
                              threads.emplace_back(std::move(task));
                            } else {
                              late.push_back(std::move(task));
                            }
                          },
                          draw(0, 1) ? 1 : 1000};
  jboost::score_rows(p, pool);
  for (int64_t i = 0; i < p.n_rows * p.n_outputs && k.keeps_contract; ++i) {
    const int64_t row = i / p.n_outputs, output = i % p.n_outputs;
    T expected = k.start[i];
    for (int64_t t = 0; t < p.n_rounds; ++t) {
      const int64_t leaf = k.leaf(t * p.n_trees + output % p.n_trees, row);
      expected += k.leaf_value[((t << p.depth) + leaf) * p.n_outputs + output];
    }
    if (k.out[i] == expected) continue;
    std::printf("wrong: n=%ld f=%ld k=%ld depth=%ld words=%ld symmetric=%d wide=%d vector=%d\n", long(p.n_rows),
                long(p.n_features), long(p.n_outputs), long(p.depth), long(p.n_words), p.symmetric, p.wide_bins,
                jboost::internal::vector_bytes());
    std::exit(1);
  }
  for (auto& task : late) task();  // after the call has returned
  for (auto& thread : threads) thread.join();
}

}  // namespace

int main() {
  const int longest = jboost::internal::vector_bytes();
  for (int bytes = 16; bytes <= longest; bytes *= 2) {
    jboost::internal::vector_bytes() = bytes;
    for (int i = 0; i < 400; ++i) draw(0, 1) ? check<float>() : check<double>();
  }
  std::puts("ok");
}
