// Random sums of _fixed_point/kernel.h: the same for every number of threads, and near those of long double. By hand, in
// the folder of the tests: g++ -std=c++17 -ffp-contract=off -pthread -I ../jboost fuzz_sums.cpp && ./a.out

#include "_fixed_point/moments.h"

#include "fuzz.h"

namespace {

// The smallest b with count <= 2^b.
int ceil_log2(int64_t count) {
  int b = 0;
  while (int64_t{1} << b < count) ++b;
  return b;
}

template <typename T>
struct Result {
  Array<int32_t> sums, bits, counts;
  Array<T> scale;
  bool operator==(const Result& other) const {
    for (int64_t c = 0; c < scale.size; ++c)
      if (!(scale[c] == other.scale[c] || (std::isnan(scale[c]) && std::isnan(other.scale[c])))) return false;
    return counts == other.counts && sums == other.sums && bits == other.bits;
  }
};

template <typename T>
struct Case {
  int64_t n, c, n_groups;
  bool is_grouped;
  Array<T> values;
  Array<int32_t> group;

  Case(int64_t n, int64_t c, int64_t n_groups)
      : n(n), c(c), n_groups(n_groups), is_grouped(n_groups > 1 || draw(0, 1)), values(n * c), group(n) {
    for (int64_t column = 0; column < c; ++column) {
      const int64_t kind = draw(0, 7);
      for (int64_t i = 0; i < n; ++i) values[i * c + column] = draw_value(kind);
      if (kind == 7 && n) values[draw(0, n - 1) * c + column] = draw_bad();
    }
    const int64_t out_of_range = draw(0, 3) == 0;
    for (int64_t i = 0; i < n; ++i)
      group[i] = static_cast<int32_t>(out_of_range && draw(0, 9) == 0 ? draw(INT32_MIN, INT32_MAX) : draw(0, n_groups - 1));
  }
  static T draw_value(int64_t kind) {
    const T normal = static_cast<T>(draw_normal());
    if (kind == 0) return 0;
    if (kind == 1) return std::numeric_limits<T>::denorm_min() * static_cast<T>(draw(0, 99));
    if (kind == 2) return std::numeric_limits<T>::max() * (draw(0, 1) ? T{1} : T{-1});
    if (kind == 3) return std::ldexp(normal, static_cast<int>(draw(-150, 126)));
    if (kind == 4) return draw(0, 9) ? T{0} : normal;
    return kind == 5 ? std::ldexp(T{1}, static_cast<int>(draw(-9, 9))) : normal;
  }
  static T draw_bad() {
    return draw(0, 1) ? std::numeric_limits<T>::quiet_NaN() : std::numeric_limits<T>::infinity() * T(draw(0, 1) ? 1 : -1);
  }

  Result<T> sum(int64_t n_threads) {
    Result<T> result{Array<int32_t>(n_groups * c * jboost::n_limbs<T>, -1), Array<int32_t>(c), Array<int32_t>(c),
                     Array<T>(c)};
    with_pool(n_threads, [&](const jboost::Pool& pool) {
      jboost::FixedPoint<T> fixed({values.get(), n, c}, pool);
      fixed.find_scale(result.scale.get(), result.counts.get());
      for (int64_t column = 0; column < c; ++column)
        result.bits[column] = std::min(std::max(31 - ceil_log2(result.counts[column]), 1), 30);
      fixed.sum_by_group(is_grouped ? group.get() : nullptr, n_groups, result.scale.get(), result.bits.get(),
                         result.sums.get());
    });
    return result;
  }

  const char* mistake() {
    Result<T> alone = sum(1);
    for (int64_t n_threads : {draw(2, 4), draw(5, 9)})
      if (!(sum(n_threads) == alone)) return "another result of several threads";
    for (int64_t column = 0; column < c; ++column)
      if (const char* what = check_column(alone, column)) return what;
    return is_grouped ? moments_mistake(alone) : nullptr;
  }

  // Two of the columns and a count in one pass, against the sums of each.
  const char* moments_mistake(Result<T>& found) {
    const int64_t columns[] = {draw(0, c - 1), draw(0, c - 1)};
    Array<T> g(n), h(n), factors(2), sums_of_g(n_groups), sums_of_h(n_groups), sums(n_groups * c);
    Array<bool> counted(n);
    Array<int32_t> n_terms(2), counts(n_groups), expected(n_groups, 0);
    for (int64_t i = 0; i < n; ++i) {
      g[i] = values[i * c + columns[0]];
      h[i] = values[i * c + columns[1]];
      counted[i] = draw(0, 1);
      if (group[i] >= 0 && group[i] < n_groups) expected[group[i]] += counted[i];
    }
    for (int j = 0; j < 2; ++j) {
      factors[j] = found.scale[columns[j]];
      n_terms[j] = found.counts[columns[j]];
    }
    with_pool(draw(1, 5), [&](const jboost::Pool& pool) {
      jboost::FixedPoint<T>({values.get(), n, c}, pool)
          .sum(group.get(), n_groups, found.scale.get(), found.counts.get(), sums.get());
      const jboost::Moments<T> moments{g.get(), h.get(), counted.get(), group.get(), n, n_groups, factors.get(), n_terms.get()};
      jboost::sum_moments(pool, moments, sums_of_g.get(), sums_of_h.get(), counts.get());
    });
    const auto differ = [](T one, T other) { return !(one == other || (std::isnan(one) && std::isnan(other))); };
    for (int64_t j = 0; j < n_groups; ++j)
      if (differ(sums_of_g[j], sums[j * c + columns[0]]) || differ(sums_of_h[j], sums[j * c + columns[1]]))
        return "other sums in one pass";
    return counts == expected ? nullptr : "other counts in one pass";
  }

  // As quantise.py has it: all magnitudes in units of 2^-30 of the power of two above the largest, then their sum.
  T scale_of(int64_t column) const {
    constexpr int most = std::numeric_limits<T>::max_exponent - 2;
    T largest = 0;
    for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(values[i * c + column]));
    int exponent = 0;
    std::frexp(largest, &exponent);
    const int shift = std::min(30 - (largest > 0 ? std::max(exponent, -most) : -most), most);
    int64_t sum = 0;
    for (int64_t i = 0; i < n; ++i)
      sum += static_cast<int64_t>(std::nearbyint(std::ldexp(std::abs(values[i * c + column]), shift)));
    return sum ? std::ldexp(T{1}, std::min(std::max(30 - ceil_log2(sum) + shift, -most), most)) : T{1};
  }

  const char* check_column(const Result<T>& found, int64_t column) const {
    bool is_finite = true;
    long double magnitude = 0;
    std::vector<long double> exact(n_groups, 0);
    for (int64_t i = 0; i < n; ++i) {
      const T value = values[i * c + column];
      is_finite = is_finite && std::isfinite(value);
      magnitude += std::abs(static_cast<long double>(value));
      const int64_t of = is_grouped ? group[i] : 0;
      if (of >= 0 && of < n_groups) exact[of] += value;
    }
    if (!is_finite) return std::isnan(found.scale[column]) ? nullptr : "a column that is not finite and has a scale";
    if (found.scale[column] != scale_of(column)) return "another scale than its formula gives";
    for (int64_t g = 0; g < n_groups; ++g) {
      const int32_t* limb = &found.sums[(g * c + column) * jboost::n_limbs<T>];
      long double sum = 0;
      for (int j = jboost::n_limbs<T> - 1; j >= 0; --j)
        sum = limb[j] + (j + 1 < jboost::n_limbs<T> ? std::ldexp(sum, -found.bits[column]) : 0);
      const int kept = 30 + found.bits[column] * (jboost::n_limbs<T> - 1);
      // Scales end at 2^126, so that a value below half of 2^-126 may count as 0; long double has 64 bits.
      const long double lost = n * (std::ldexp(2 * magnitude, -kept) + std::ldexp(1.0L, -127));
      const long double rounding = 4 * n * std::ldexp(magnitude, -64);
      if (std::abs(sum / found.scale[column] - exact[g]) > lost + rounding) return "a sum too far from the exact one";
    }
    return nullptr;
  }
};

template <typename T>
const char* mistake_of(int64_t n, int64_t c, int64_t n_groups) {
  return Case<T>(n, c, n_groups).mistake();
}

}  // namespace

int main(int argc, char** argv) {
  for (int64_t i = 0, n_all = n_cases(argc, argv, 400); i < n_all; ++i) {
    const bool many = i % 40 == 39;
    const int64_t n = many ? draw(10000, 60000) : draw(0, draw(0, 1) ? 40 : 2000), c = draw(1, many ? 3 : 20);
    const int64_t n_groups = draw(0, 1) ? 1 : draw(1, 70);
    const bool is_single = draw(0, 1);
    const char* what = is_single ? mistake_of<float>(n, c, n_groups) : mistake_of<double>(n, c, n_groups);
    if (what) {
      std::printf("%s: case %ld n=%ld c=%ld groups=%ld %s\n", what, long(i), long(n), long(c), long(n_groups),
                  is_single ? "float" : "double");
      return 1;
    }
  }
  std::puts("ok");
}
