// Random trees of _tree/grow.h: the same for every number of threads and whether columns are added in pairs or not or
// tables kept or features in bundles, leaves that are those of the splits, and nothing but that for codes beyond the last. By hand, in the
// folder of the tests: g++ -std=c++17 -ffp-contract=off -pthread -I ../jboost fuzz_tree.cpp && ./a.out

#include "_tree/grow.h"

#include <algorithm>
#include <vector>

#include "fuzz.h"
#include "fuzz_bundles.h"

namespace {

constexpr int64_t kNeverJoint = int64_t{1} << 40, kAlwaysKept = int64_t{1} << 60;

struct Shape {
  int64_t n, f, width, k, n_codes, depth;
  bool wide, symmetric, has_missing, counts, keeps_contract;

  int64_t groups() const { return (f + width - 1) / width; }
  int64_t c() const { return 2 * k + counts; }
  int64_t slots() const { return symmetric ? depth : (int64_t{1} << depth) - 1; }
};

Shape draw_shape(bool many_rows) {
  Shape s{};
  s.n = many_rows ? draw(5000, 40000) : draw(1, draw(0, 1) ? 40 : 700);
  s.f = draw(1, many_rows ? 10 : 20);
  s.width = draw(1, jboost::kGroup);
  s.k = draw(0, 2) ? 1 : draw(2, draw(0, 1) ? 9 : 20);
  s.wide = draw(0, 2) == 0;
  s.n_codes = draw(0, 2) ? draw(2, 40) : draw(2, s.wide ? 700 : 256);
  s.depth = draw(1, many_rows ? 6 : 8);
  s.symmetric = draw(0, 1);
  s.has_missing = draw(0, 1);
  s.counts = draw(0, 2) == 0;
  s.keeps_contract = draw(0, 4) > 0;
  if (draw(0, 2)) return s;
  s.width = draw(jboost::kJointWidth, jboost::kGroup);
  s.n_codes = draw(2, jboost::kJointCodes);
  s.k = 1;
  s.wide = s.counts = false;
  return s;
}

// What grows a tree, and what it must not step out of.
template <typename T>
struct Case {
  Shape s;
  Array<uint8_t> narrow;
  Array<uint16_t> wide;
  Array<int32_t> categorical;
  Array<bool> active, allowed;
  Array<T> g, h, scale;
  jboost::Growth<T> growth{};

  explicit Case(const Shape& shape)
      : s(shape), narrow(s.wide ? 0 : s.groups() * s.n * s.width), wide(s.wide ? s.groups() * s.n * s.width : 0),
        categorical(draw(0, s.f / 2)), active(s.n), allowed(s.depth * s.f), g(s.n * s.k), h(s.n * s.k), scale(s.c(), 1) {
    const int64_t share = draw(0, 4);
    for (int64_t i = 0; i < s.n; ++i) active[i] = share == 0 || draw(0, 9) < 2 * share;
    for (int64_t i = 0; i < allowed.size; ++i) allowed[i] = draw(0, 4) > 0;
    for (int64_t i = 0; i < categorical.size; ++i) categorical[i] = static_cast<int32_t>(2 * i);
    for (int64_t i = 0; i < 2 * s.k; ++i) scale[i] = std::ldexp(T{1}, static_cast<int>(draw(-30, 3)));
    fill(g, 0);
    fill(h, 1);
    fill_codes();
    growth.grouped = {s.wide ? static_cast<const void*>(wide.get()) : narrow.get(), s.wide, s.n, s.f, s.width};
    growth.g = g.get();
    growth.h = h.get();
    growth.active = active.get();
    growth.allowed = allowed.get();
    growth.rules = {T(draw(0, 3)), T(0.5 * draw(0, 1)), T(0.25 * draw(0, 1)), T(draw(0, 2)), scale.get(), s.k,
                    static_cast<int32_t>(s.counts ? draw(2, 20) : 0), s.has_missing};
    growth.cat_smooth = T(draw(0, 10));
    growth.categorical = categorical.get();
    growth.n_categorical = categorical.size;
    growth.n_category_codes = categorical.size ? category_codes() : 0;
    growth.max_cat_to_onehot = draw(0, 8);
    growth.n_codes = s.n_codes;
    growth.depth = s.depth;
    growth.symmetric = s.symmetric;
    growth.n_set_words = categorical.size ? (s.n_codes + 31) / 32 : 0;
  }
  int64_t category_codes() const { return std::min<int64_t>(s.n_codes, 20); }
  int64_t place(int64_t feature, int64_t row) const {
    return (feature / s.width * s.n + row) * s.width + feature % s.width;
  }
  int64_t code(int64_t feature, int64_t row) const {
    return s.wide ? wide[place(feature, row)] : narrow[place(feature, row)];
  }
  bool is_categorical(int64_t feature) const { return feature % 2 == 0 && feature / 2 < categorical.size; }

  // With derivatives, all but those of inactive rows of a magnitude that their scale allows.
  void fill(Array<T>& values, int64_t is_h) {
    // Codes beyond the last may be counted twice: small numbers keep such sums inside of an int32.
    const int64_t limit = (int64_t{1} << (s.keeps_contract ? 29 : 20)) / s.n;
    const bool anything = draw(0, 9) > 0, is_nan = draw(0, 19) == 0;
    for (int64_t i = 0; i < s.n; ++i)
      for (int64_t j = 0; j < s.k; ++j) {
        const int64_t value = !anything ? 0 : is_h ? draw(0, limit) : draw(-limit, limit);
        const int64_t ignored = draw(INT32_MIN, INT32_MAX);
        values[i * s.k + j] = static_cast<T>(active[i] ? value : ignored) * scale[2 * j + is_h];
      }
    if (is_nan) {
      values[draw(0, s.n * s.k - 1)] = std::numeric_limits<T>::infinity();
      for (int64_t j = 0; j < s.k; ++j) scale[2 * j + is_h] = std::numeric_limits<T>::quiet_NaN();
    }
  }
  void fill_codes() {
    for (int64_t feature = 0; feature < s.groups() * s.width; ++feature) {
      const int64_t first = s.has_missing ? 0 : 1, n_codes = is_categorical(feature) ? category_codes() : s.n_codes;
      const int64_t most = s.keeps_contract ? std::max(first, n_codes - 1) : s.wide ? 65535 : 255;
      const int64_t spread = draw(0, 2) ? most : std::min(most, first + draw(0, 3));
      for (int64_t row = 0; row < s.n; ++row) {
        const int64_t code = feature < s.f ? draw(first, spread) : 0;
        if (s.wide)
          wide[place(feature, row)] = static_cast<uint16_t>(code);
        else
          narrow[place(feature, row)] = static_cast<uint8_t>(code);
      }
    }
  }
};

template <typename T>
struct Result {
  Array<int32_t> feature, threshold, leaf;
  Array<bool> missing_right;
  Array<uint32_t> sets;
  Array<T> gain;

  explicit Result(const Case<T>& k)
      : feature(k.s.slots(), -1), threshold(k.s.slots(), -1), leaf(k.s.n, -1), missing_right(k.s.slots()),
        sets(k.s.slots() * k.growth.n_set_words), gain(k.s.slots(), -1) {}
  bool operator==(const Result& other) const {
    return feature == other.feature && threshold == other.threshold && leaf == other.leaf &&
           missing_right == other.missing_right && sets == other.sets && gain == other.gain;
  }
};

template <typename T>
Result<T> grow(const Case<T>& k, int64_t n_threads, int64_t joint_rows, int64_t kept_bytes,
               RandomBundles* bundles = nullptr) {
  Result<T> result(k);
  jboost::Growth<T> growth = k.growth;
  if (bundles) {
    growth.bundles = bundles->get();
    growth.grouped = {bundles->codes.get(), false, k.s.n, growth.bundles.fit_columns(), bundles->width};
  }
  growth.joint_rows = joint_rows;
  growth.kept_bytes = kept_bytes;
  growth.feature = result.feature.get();
  growth.threshold = result.threshold.get();
  growth.missing_right = result.missing_right.get();
  growth.categories_right = result.sets.get();
  growth.gain = result.gain.get();
  growth.leaf = result.leaf.get();
  with_pool(n_threads, [&](const jboost::Pool& pool) { jboost::grow_tree(growth, pool); });
  return result;
}

// The leaf of a row by the arrays as they are documented.
template <typename T>
int64_t leaf_of(const Case<T>& k, const Result<T>& tree, int64_t row) {
  int64_t node = 0;
  for (int64_t level = 0; level < k.s.depth; ++level) {
    const int64_t slot = k.s.symmetric ? level : (int64_t{1} << level) - 1 + node;
    const int64_t feature = tree.feature[slot], code = k.code(feature, row), words = k.growth.n_set_words;
    bool right = code > tree.threshold[slot];
    if (k.is_categorical(feature) && tree.threshold[slot] < k.s.n_codes)
      right = tree.sets[slot * words + code / 32] >> (code % 32) & 1;
    if (code == 0) right = tree.missing_right[slot];
    node = 2 * node + right;
  }
  return node;
}

// Whether some split of a node leaves a child fewer rows than it must hold.
template <typename T>
bool starves_a_child(const Case<T>& k, const Result<T>& tree) {
  for (int64_t level = 0; level < k.s.depth; ++level) {
    std::vector<int64_t> count(int64_t{2} << level);
    for (int64_t row = 0; row < k.s.n; ++row) count[tree.leaf[row] >> (k.s.depth - level - 1)] += k.active[row];
    for (int64_t node = 0; node < int64_t{1} << level; ++node)
      if (tree.threshold[(int64_t{1} << level) - 1 + node] < k.s.n_codes &&
          std::min(count[2 * node], count[2 * node + 1]) < k.growth.rules.min_child_samples)
        return true;
  }
  return false;
}

template <typename T>
const char* mistake(const Case<T>& k) {
  const Result<T> alone = grow(k, 1, kNeverJoint, kAlwaysKept);
  for (int64_t row = 0; row < k.s.n; ++row) {
    if (alone.leaf[row] < 0 || alone.leaf[row] >> k.s.depth) return "a leaf that there is not";
    if (k.s.keeps_contract && alone.leaf[row] != leaf_of(k, alone, row)) return "a row in another leaf";
  }
  for (int64_t slot = 0; slot < k.s.slots(); ++slot)
    if (alone.feature[slot] < 0 || alone.feature[slot] >= k.s.f || alone.gain[slot] < 0) return "a split of nothing";
  if (k.s.keeps_contract && !k.s.symmetric && starves_a_child(k, alone)) return "a child with too few rows";
  for (int64_t n_threads : {int64_t{1}, draw(2, 4), draw(5, 9)}) {
    const Result<T> together = grow(k, n_threads, draw(0, 2) ? draw(0, 200) : kNeverJoint,
                                    draw(0, 2) ? 0 : kAlwaysKept);
    if (k.s.keeps_contract && !(together == alone)) return "another result of several threads, of pairs or of passing tables";
  }
  if (!k.s.keeps_contract || k.s.n_codes > 256) return nullptr;
  RandomBundles bundles(k.s.n, k.s.f, k.s.n_codes, [&](int64_t feature, int64_t row) { return k.code(feature, row); });
  if (!(grow(k, draw(1, 4), draw(0, 200), draw(0, 1) ? 0 : kAlwaysKept, &bundles) == alone))
    return "another result of bundles";
  return nullptr;
}

// Rows sent to two sides one by one and together: as std::stable_partition does it.
template <typename Code, bool kInTurn>
const char* partition_mistake() {
  const int64_t n = draw(0, 70), step = draw(1, 9), n_rows = kInTurn ? n : n + draw(0, 60);
  Array<Code> codes(n_rows * step);
  for (int64_t i = 0; i < codes.size; ++i) codes[i] = static_cast<Code>(draw(0, 255));
  const uint32_t share = static_cast<uint32_t>(draw(0, 256));
  const auto goes_right = [share](uint32_t code) -> uint32_t { return code < share; };
  const jboost::Column<Code> column{codes.get(), step};
  std::vector<jboost::RowNumber> numbers(n_rows);
  for (int64_t i = 0; i < n_rows; ++i) numbers[i] = static_cast<jboost::RowNumber>(i);
  for (int64_t i = n_rows; i > n; --i) numbers.erase(numbers.begin() + draw(0, i - 1));
  std::vector<jboost::RowNumber> expected = numbers;
  const auto last = std::stable_partition(expected.begin(), expected.end(),
                                          [&](jboost::RowNumber row) { return !goes_right(column[row]); });
  for (const bool together : {false, jboost::internal::arranges_bytes()}) {
    Array<jboost::RowNumber> rows(n), spare(n);
    for (int64_t i = 0; i < n; ++i) rows[i] = kInTurn ? 0 : numbers[i];
    const int64_t n_left = jboost::partition<kInTurn>(column, goes_right, rows.get(), n, spare.get(), together);
    if (n_left != last - expected.begin()) return "another number of rows goes left";
    for (int64_t i = 0; i < n; ++i)
      if (rows[i] != expected[i]) return "rows are in another order";
  }
  return nullptr;
}
const char* any_partition_mistake() {
  for (const char* what : {partition_mistake<uint8_t, true>(), partition_mistake<uint8_t, false>(),
                           partition_mistake<uint16_t, true>(), partition_mistake<uint16_t, false>()})
    if (what) return what;
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t n_split = 0;
  for (int64_t i = 0, n_all = n_cases(argc, argv, 500); i < n_all; ++i) {
    const Shape s = draw_shape(i % 50 == 49);
    const bool is_single = draw(0, 2) > 0;
    const char* what = is_single ? mistake(Case<float>(s)) : mistake(Case<double>(s));
    if (!what) what = any_partition_mistake();
    if (what) {
      std::printf("%s: case %ld n=%ld f=%ld width=%ld k=%ld codes=%ld depth=%ld wide=%d symmetric=%d missing=%d\n",
                  what, long(i), long(s.n), long(s.f), long(s.width), long(s.k), long(s.n_codes), long(s.depth), s.wide,
                  s.symmetric, s.has_missing);
      return 1;
    }
    const Result<float> other = grow(Case<float>(s), 2, jboost::kJointRows, jboost::kKeptTables);
    for (int64_t slot = 0; slot < s.slots(); ++slot) n_split += other.gain[slot] > 0;
  }
  std::puts(n_split ? "ok" : "nothing was ever split");
}
