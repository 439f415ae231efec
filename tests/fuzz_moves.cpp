// Random moves of _objective/moves.h: the same for every number of threads, and near those of long double. By hand, in the
// folder of the tests: g++ -std=c++17 -ffp-contract=off -pthread -I ../jboost fuzz_moves.cpp && ./a.out

#include "_objective/moves.h"

#include "fuzz.h"

namespace {

template <typename T>
const char* mistake() {
  const int64_t n = draw(0, 9) ? draw(0, 2000) : draw(0, 20000), k = draw(1, 4), c = draw(0, 1) ? 1 : k;
  const int64_t n_leaves = draw(1, 70);
  Array<T> score(n * k), g(n * k), h(n * k), value(n), weight(n), leaf_value(n_leaves * k), units(2 * k);
  Array<int32_t> leaf(n * c);
  const auto fill = [](Array<T>& numbers) {
    for (int64_t i = 0; i < numbers.size; ++i) numbers[i] = static_cast<T>(draw_normal());
  };
  for (Array<T>* numbers : {&score, &g, &h, &value, &leaf_value, &units}) fill(*numbers);
  for (int64_t i = 0; i < n; ++i) weight[i] = static_cast<T>(draw(0, 2));
  const bool beyond = draw(0, 3) == 0;  // leaves beyond the contract: any value will do, from inside of the array
  for (int64_t i = 0; i < n * c; ++i)
    leaf[i] = static_cast<int32_t>(beyond && draw(0, 9) == 0 ? draw(INT32_MIN, INT32_MAX) : draw(0, n_leaves - 1));
  const T bound = 9.5, typical = 2, rounding = static_cast<T>(1e-3);
  const jboost::Moves<T> moves{score.get(),  leaf.get(), leaf_value.get(), g.get(),   h.get(), value.get(), weight.get(),
                               units.get(),  units.get() + k, bound,       typical,   rounding, n, k, c, n_leaves};
  Array<T> moved(n * k), most(n), moved_alone(n * k), most_alone(n);
  with_pool(1, [&](const jboost::Pool& pool) { jboost::move_scores(pool, moves, moved_alone.get(), most_alone.get()); });
  with_pool(draw(2, 9), [&](const jboost::Pool& pool) { jboost::move_scores(pool, moves, moved.get(), most.get()); });
  if (!(moved == moved_alone) || !(most == most_alone)) return "another result of several threads";
  if (beyond) return nullptr;
  for (int64_t i = 0; i < n; ++i) {
    long double expected = 0, size = 0;
    for (int64_t j = 0; j < k; ++j) {
      const T move = leaf_value[leaf[i * c + (c == 1 ? 0 : j)] * k + j];
      if (moved[i * k + j] != score[i * k + j] + move) return "another score";
      const long double of_g = static_cast<long double>(g[i * k + j]) * units[j] * move;
      const long double of_h = static_cast<long double>(bound) * h[i * k + j] * units[k + j] * move * move;
      expected += of_g + of_h;
      size += std::abs(of_g) + std::abs(of_h);
    }
    if (weight[i] == 0) {
      if (most[i] != std::numeric_limits<T>::infinity()) return "a row without weight that may not rise";
      continue;
    }
    const long double exact = value[i] + expected / weight[i] + rounding * (std::abs(value[i]) + typical);
    if (std::abs(most[i] - exact) > 16 * std::numeric_limits<T>::epsilon() * (size + std::abs(value[i]) + typical))
      return "another loss that is allowed";
  }
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  for (int64_t i = 0; i < n_cases(argc, argv, 300); ++i)
    if (const char* what = i % 2 ? mistake<float>() : mistake<double>()) {
      std::printf("case %lld: %s\n", static_cast<long long>(i), what);
      return 1;
    }
  std::puts("ok");
}
