// Random histograms of _histogram/kernel.h, and of pairs of columns by joint.h, against a naive loop. By hand, in the
// folder of the tests: g++ -std=c++17 -pthread -I ../jboost fuzz_histogram.cpp && ./a.out

#include "_histogram/joint.h"
#include "_histogram/kernel.h"

#include "fuzz.h"

namespace {

struct Case {
  Array<uint8_t> narrow;
  Array<uint16_t> wide;
  Array<uint32_t> slot;
  Array<int32_t> values, out, expected;
  jboost::Problem problem;
};

Case make_case(int64_t n, int64_t f, int64_t c, int64_t l, int64_t b, bool wide, bool keeps_contract) {
  Case k{Array<uint8_t>(wide ? 0 : n * f), Array<uint16_t>(wide ? n * f : 0), Array<uint32_t>(n),
         Array<int32_t>(n * c),            Array<int32_t>(b * c * l * f, -1),  Array<int32_t>(b * c * l * f),
         {}};
  const bool is_skewed = draw(0, 1);
  for (int64_t i = 0; i < n * f; ++i) {
    const int64_t code = is_skewed && draw(0, 9) ? 0 : keeps_contract ? draw(0, b - 1) : draw(0, wide ? 65535 : 255);
    if (wide)
      k.wide[i] = static_cast<uint16_t>(code);
    else
      k.narrow[i] = static_cast<uint8_t>(code);
  }
  const int64_t limit = 2147483647 / n;
  for (int64_t i = 0; i < n; ++i) k.slot[i] = static_cast<uint32_t>(draw(0, 9) ? draw(0, 2 * l) : draw(0, 4294967295));
  for (int64_t i = 0; i < n * c; ++i) k.values[i] = static_cast<int32_t>(draw(-limit, limit));
  for (int64_t i = 0; i < n && keeps_contract; ++i)
    for (int64_t j = 0; j < f * c && k.slot[i] < l; ++j) {
      const int64_t feature = j / c, statistic = j % c;
      const int64_t code = wide ? k.wide[feature * n + i] : k.narrow[feature * n + i];
      k.expected[((code * c + statistic) * l + k.slot[i]) * f + feature] += k.values[i * c + statistic];
    }
  const void* bins = wide ? static_cast<const void*>(k.wide.get()) : k.narrow.get();
  k.problem = {bins, wide, k.slot.get(), k.values.get(), k.out.get(), n, f, c, l, b};
  return k;
}

// Whether the tables of a group of columns, added in pairs, are the sums of a naive loop.
bool joint_is_right() {
  const int64_t n = draw(1, 400), width = draw(1, jboost::kGroup), f = draw(1, 3 * width), n_codes = draw(1, 64);
  const int64_t n_groups = (f + width - 1) / width, group = draw(0, n_groups - 1), first = draw(0, n - 1);
  const bool keeps_contract = draw(0, 4) > 0, in_turn = draw(0, 1);
  const int64_t n_added = draw(0, n - first);
  Array<uint8_t> codes(n_groups * n * width);
  for (int64_t i = 0; i < codes.size; ++i) codes[i] = static_cast<uint8_t>(draw(0, keeps_contract ? n_codes - 1 : 255));
  const jboost::GroupedBins bins{codes.get(), false, n, f, width};
  const jboost::TableShape shape(n_codes, 2, width, false);
  Array<uint64_t> values(n_added), joint(jboost::kJointWords), table(shape.words_for(1));
  Array<jboost::RowNumber> rows(in_turn ? 0 : n_added);
  Array<int32_t> expected(2 * width * n_codes);
  for (int64_t i = 0; i < n_added; ++i) {
    const int32_t g = static_cast<int32_t>(draw(-1000000, 1000000)), h = static_cast<int32_t>(draw(-1000, 1000000));
    const int64_t row = in_turn ? i : draw(0, n - first - 1);
    values[i] = jboost::packed(g, h);
    if (!in_turn) rows[i] = static_cast<jboost::RowNumber>(row);
    for (int64_t j = 0; j < width && keeps_contract; ++j) {
      const int64_t cell = j * n_codes + codes[(group * n + first + row) * width + j];
      expected[2 * cell] += g;
      expected[2 * cell + 1] += h;
    }
  }
  jboost::add_joint_rows(bins, group, first, in_turn ? nullptr : rows.get(), n_added, values.get(), joint.get(),
                         table.get(), shape);
  jboost::add_marginals(joint.get(), bins.features_of(group), n_codes, table.get(), shape);
  for (int64_t j = 0; j < bins.features_of(group) && keeps_contract; ++j)
    for (int64_t code = 0; code < n_codes; ++code) {
      const uint64_t word = table[j * shape.feature_words + code];
      const int64_t cell = j * n_codes + code;
      if (jboost::high(word) != expected[2 * cell] || jboost::low(word) != expected[2 * cell + 1]) {
        std::printf("wrong pairs: n=%ld f=%ld width=%ld codes=%ld\n", long(n), long(f), long(width), long(n_codes));
        return false;
      }
    }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  for (int64_t i = 0, n_all = n_cases(argc, argv, 400); i < n_all; ++i) {
    const bool many = i % 60 == 59;
    const int64_t n = many ? draw(32000, 70000) : draw(1, 600), f = draw(1, many ? 3 : 40);
    const int64_t c = draw(0, 2) ? draw(1, 3) : draw(4, 19), l = draw(1, 12), n_threads = draw(1, 8);
    const bool wide = draw(0, 1), keeps_contract = draw(0, 4) > 0;
    const int64_t b = draw(0, 1) ? draw(1, 256) : draw(1, wide ? 700 : 256);
    const Case k = make_case(n, f, c, l, b, wide, keeps_contract);
    with_pool(n_threads, [&](const jboost::Pool& pool) { jboost::build_histogram(k.problem, pool); });
    if (keeps_contract && !(k.out == k.expected)) {
      std::printf("wrong: n=%ld f=%ld c=%ld l=%ld b=%ld threads=%ld\n", long(n), long(f), long(c), long(l), long(b),
                  long(n_threads));
      return 1;
    }
    if (!joint_is_right()) return 1;
  }
  std::puts("ok");
}
