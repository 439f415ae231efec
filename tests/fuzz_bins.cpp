// Random columns of codes.h against a count of the edges below, with any steps between the values.
// By hand, in the folder of the tests: g++ -std=c++17 -I ../jboost fuzz_bins.cpp && ./a.out

#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "_bins/codes.h"

namespace {

std::mt19937_64 generator(0);

int64_t draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(generator); }

// Any bits at all, or a number of everyday size.
template <typename T>
T draw_float() {
  if (draw(0, 3)) return static_cast<T>(draw(-50, 50)) / 4;
  const uint64_t bits = generator();
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

template <typename T, typename Code>
void check() {
  const int64_t n = draw(0, 19) ? draw(0, 1500) : draw(8192, 9000), f = draw(1, 4), e = draw(0, sizeof(Code) == 1 ? 254 : 900);
  const bool by_rows = draw(0, 1);
  const int64_t gap = draw(1, 3), row_step = by_rows ? f * gap : gap, feature_step = by_rows ? gap : n * gap;
  const T infinity = std::numeric_limits<T>::infinity();
  std::vector<T> values, edges;
  for (int64_t i = 0; i < n * f * gap - (gap - 1); ++i) values.push_back(draw_float<T>());
  for (int64_t j = 0; j < f; ++j) {
    std::vector<T> row(e, infinity);
    for (int64_t i = draw(0, e); i > 0; --i) row[i - 1] = draw_float<T>();
    for (T& edge : row) edge = edge == edge ? edge : infinity;
    std::sort(row.begin(), row.end());
    edges.insert(edges.end(), row.begin(), row.end());
  }
  values.shrink_to_fit();
  edges.shrink_to_fit();
  std::vector<Code> codes(n * f, 77);
  jboost::bin_values(jboost::Binning<T, Code>{values.data(), row_step, feature_step, edges.data(), codes.data(), n, f, e},
                     [](const auto& work) { work(); });
  for (int64_t i = 0; i < n * f; ++i) {
    const int64_t row = i % n, feature = i / n;
    const T value = values[row * row_step + feature * feature_step];
    int64_t expected = 0;
    if (value == value)
      expected = 1 + std::count_if(edges.begin() + feature * e, edges.begin() + (feature + 1) * e,
                                   [&](T edge) { return edge < value; });
    if (codes[i] == expected) continue;
    std::printf("wrong: n=%ld f=%ld e=%ld value=%g: %ld, not %ld\n", long(n), long(f), long(e), double(value),
                long(codes[i]), long(expected));
    std::exit(1);
  }
}

}  // namespace

int main() {
  for (int i = 0; i < 150; ++i) {
    check<float, uint8_t>();
    check<float, uint16_t>();
    check<double, uint8_t>();
    check<double, uint16_t>();
  }
  std::puts("ok");
}
