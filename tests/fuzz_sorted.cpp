// Random trees of _tree/sorted_columns/grow.h: the same for every number of threads, and leaves that are those of the
// splits. By hand, in the folder of the tests: g++ -std=c++17 -ffp-contract=off -pthread -I ../jboost fuzz_sorted.cpp

#include "_tree/sorted_columns/grow.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fuzz.h"

namespace {

template <typename T>
struct Case {
  int64_t n, f, k, n_codes, depth;
  bool has_missing, counts;
  Array<uint32_t> codes;  // [f, n]
  Array<jboost::Entry> columns;
  Array<bool> active, allowed;
  Array<T> g, h, scale;

  Case()
      : n(draw(1, draw(0, 1) ? 40 : 3000)), f(draw(1, 12)), k(draw(0, 2) ? 1 : draw(2, 5)),
        n_codes(draw(0, 1) ? draw(2, 30) : draw(100, 1000000)), depth(draw(1, 7)), has_missing(draw(0, 1)),
        counts(draw(0, 2) == 0), codes(f * n), columns(f * n), active(n), allowed(depth * f), g(n * k), h(n * k),
        scale(2 * k + counts, 1) {
    for (int64_t i = 0; i < n; ++i) active[i] = draw(0, 9) > 1;
    for (int64_t i = 0; i < allowed.size; ++i) allowed[i] = draw(0, 4) > 0;
    for (int64_t i = 0; i < 2 * k; ++i) scale[i] = std::ldexp(T{1}, static_cast<int>(draw(-30, 3)));
    const int64_t limit = (int64_t{1} << 29) / n;
    for (int64_t i = 0; i < n * k; ++i) {
      g[i] = static_cast<T>(draw(-limit, limit)) * scale[2 * (i % k)];
      h[i] = static_cast<T>(draw(0, limit)) * scale[2 * (i % k) + 1];
    }
    if (draw(0, 19) == 0) scale[0] = std::numeric_limits<T>::quiet_NaN();
    for (int64_t j = 0; j < f; ++j) {
      std::vector<uint32_t> order(n);
      std::iota(order.begin(), order.end(), 0);
      const int64_t first = has_missing ? 0 : 1, last = draw(0, 2) ? n_codes - 1 : std::min(n_codes - 1, first + draw(0, 3));
      for (int64_t i = 0; i < n; ++i) codes[j * n + i] = static_cast<uint32_t>(draw(first, std::max(first, last)));
      std::stable_sort(order.begin(), order.end(),
                       [&](uint32_t a, uint32_t b) { return codes[j * n + a] < codes[j * n + b]; });
      for (int64_t i = 0; i < n; ++i) columns[j * n + i] = {order[i], codes[j * n + order[i]]};
    }
  }
  int64_t slots() const { return (int64_t{1} << depth) - 1; }
};

template <typename T>
struct Result {
  Array<int32_t> feature, threshold, leaf;
  Array<bool> missing_right;
  Array<T> gain;

  explicit Result(Case<T>& c)
      : feature(c.slots(), -1), threshold(c.slots(), -1), leaf(c.n, -1), missing_right(c.slots()), gain(c.slots(), -1) {}
  bool operator==(const Result& other) const {
    return feature == other.feature && threshold == other.threshold && leaf == other.leaf &&
           missing_right == other.missing_right && gain == other.gain;
  }
};

template <typename T>
Result<T> grow(Case<T>& c, const jboost::Rules<T>& rules, int64_t n_threads) {
  Result<T> result(c);
  jboost::SortedGrowth<T> p{};
  p.columns = c.columns.get();
  p.g = c.g.get();
  p.h = c.h.get();
  p.active = c.active.get();
  p.allowed = c.allowed.get();
  p.rules = rules;
  p.n_rows = c.n;
  p.n_features = c.f;
  p.n_codes = c.n_codes;
  p.depth = c.depth;
  p.feature = result.feature.get();
  p.threshold = result.threshold.get();
  p.missing_right = result.missing_right.get();
  p.gain = result.gain.get();
  p.leaf = result.leaf.get();
  with_pool(n_threads, [&](const jboost::Pool& pool) { jboost::grow_sorted(p, pool); });
  return result;
}

template <typename T>
const char* mistake() {
  Case<T> c;
  const jboost::Rules<T> rules{T(draw(0, 3)), T(0.5 * draw(0, 1)), T(0.25 * draw(0, 1)), T(draw(0, 2)), c.scale.get(), c.k,
                               static_cast<int32_t>(c.counts ? draw(2, 20) : 0), c.has_missing};
  const Result<T> alone = grow(c, rules, 1);
  for (int64_t row = 0; row < c.n; ++row) {
    int64_t node = 0;
    for (int64_t level = 0; level < c.depth; ++level) {
      const int64_t slot = (int64_t{1} << level) - 1 + node;
      if (alone.feature[slot] < 0 || alone.feature[slot] >= c.f || alone.gain[slot] < 0) return "a split of nothing";
      const int64_t code = c.codes[alone.feature[slot] * c.n + row];
      node = 2 * node + (code ? code > alone.threshold[slot] : alone.missing_right[slot]);
    }
    if (alone.leaf[row] != node) return "a row in another leaf";
  }
  if (!(grow(c, rules, draw(2, 9)) == alone)) return "another result of several threads";
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  for (int64_t i = 0; i < n_cases(argc, argv, 300); ++i) {
    const char* what = i % 2 ? mistake<float>() : mistake<double>();
    if (what) {
      std::printf("case %d: %s\n", static_cast<int>(i), what);
      return 1;
    }
  }
  std::printf("ok\n");
  return 0;
}
