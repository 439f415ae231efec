// Random histograms of kernel.h against a naive loop, on threads that start late or never.
// Compiled with sanitizers by test_histogram.py, or by hand: g++ -std=c++17 -I jboost/_histogram -pthread native_fuzz.cpp

#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "kernel.h"

namespace {

std::mt19937 generator(0);

int64_t draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(generator); }

// Exactly as long as the arrays, so that the address sanitizer sees every step outside.
struct Case {
  std::vector<uint8_t> narrow;
  std::vector<uint16_t> wide;
  std::vector<uint32_t> slot;
  std::vector<int32_t> values, out, expected;
  jboost::Problem problem;
  bool keeps_contract;
};

Case make_case(int64_t n, int64_t f, int64_t c, int64_t l, int64_t b, bool wide, bool keeps_contract) {
  Case k;
  const bool is_skewed = draw(0, 1);
  for (int64_t i = 0; i < n * f; ++i) {
    const int64_t code = is_skewed && draw(0, 9) ? 0 : keeps_contract ? draw(0, b - 1) : draw(0, wide ? 65535 : 255);
    wide ? k.wide.push_back(code) : k.narrow.push_back(code);
  }
  const int64_t limit = 2147483647 / n;
  for (int64_t i = 0; i < n; ++i) k.slot.push_back(draw(0, 9) ? draw(0, 2 * l) : draw(0, 4294967295));
  for (int64_t i = 0; i < n * c; ++i) k.values.push_back(draw(-limit, limit));
  k.out.assign(b * c * l * f, -1);
  k.expected.assign(b * c * l * f, 0);
  for (int64_t i = 0; i < n && keeps_contract; ++i)
    for (int64_t j = 0; j < f * c && k.slot[i] < l; ++j) {
      const int64_t feature = j / c, statistic = j % c;
      const int64_t code = wide ? k.wide[feature * n + i] : k.narrow[feature * n + i];
      k.expected[((code * c + statistic) * l + k.slot[i]) * f + feature] += k.values[i * c + statistic];
    }
  const void* bins = wide ? static_cast<const void*>(k.wide.data()) : k.narrow.data();
  k.problem = {bins, wide, k.slot.data(), k.values.data(), k.out.data(), n, f, c, l, b};
  k.keeps_contract = keeps_contract;
  return k;
}

void run(std::vector<Case>& cases, int64_t n_threads) {
  std::vector<std::thread> threads;
  std::vector<std::function<void()>> late;
  const jboost::Pool pool{n_threads,
                          [&](std::function<void()> task) {
                            if (draw(0, 3)) {
                              threads.emplace_back(std::move(task));
                            } else {
                              late.push_back(std::move(task));
                            }
                          },
                          draw(0, 1) ? 1 : 1000};
  std::vector<jboost::Problem> batch;
  for (Case& k : cases) batch.push_back(k.problem);
  jboost::build_histograms(batch, pool);
  for (const Case& k : cases)
    if (k.keeps_contract && k.out != k.expected) {
      const jboost::Problem& p = k.problem;
      std::printf("wrong: n=%ld f=%ld c=%ld l=%ld b=%ld threads=%ld\n", long(p.n_rows), long(p.n_features),
                  long(p.n_statistics), long(p.n_slots), long(p.n_codes), long(n_threads));
      std::exit(1);
    }
  for (auto& task : late) task();  // after the call has returned
  for (auto& thread : threads) thread.join();
}

}  // namespace

int main() {
  for (int i = 0; i < 300; ++i) {
    const int64_t n = i % 60 == 0 ? draw(32000, 70000) : draw(1, 600), f = draw(1, i % 60 == 0 ? 3 : 40);
    const int64_t c = draw(0, 2) ? draw(1, 3) : draw(4, 19), l = draw(1, 12);
    const bool wide = draw(0, 1), keeps_contract = draw(0, 4) > 0;
    const int64_t b = draw(0, 1) ? draw(1, 256) : draw(1, wide ? 700 : 256);
    std::vector<Case> cases;
    for (int64_t size = draw(0, 3) ? 1 : draw(2, 9); size > 0; --size)
      cases.push_back(make_case(n, f, c, l, b, wide, keeps_contract));
    run(cases, draw(1, 8));
  }
  std::puts("ok");
}
