// What the fuzzers share: random numbers, arrays exactly as long as they should be, threads that start late or never.

#ifndef JBOOST_TESTS_FUZZ_H_
#define JBOOST_TESTS_FUZZ_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "_runtime/parallel.h"

inline std::mt19937& generator() {
  static std::mt19937 numbers(0);
  return numbers;
}
inline int64_t draw(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(generator());
}
inline double draw_normal() { return std::normal_distribution<double>()(generator()); }

// An array on the heap without a byte to spare, so that the address sanitizer sees every step outside.
template <typename T>
struct Array {
  explicit Array(int64_t size = 0, T value = T{}) : size(size), data(new T[size]) { fill(value); }
  void fill(T value) {
    for (int64_t i = 0; i < size; ++i) data[i] = value;
  }
  T& operator[](int64_t i) { return data[i]; }
  const T& operator[](int64_t i) const { return data[i]; }
  T* get() { return data.get(); }
  bool operator==(const Array& other) const {
    for (int64_t i = 0; i < size; ++i)
      if (!(data[i] == other[i])) return false;
    return size == other.size;
  }

  int64_t size;
  std::unique_ptr<T[]> data;
};

// Gives work a pool of which some threads start at once, some tasks only after the work is done, and some on the spot.
template <typename Work>
void with_pool(int64_t n_threads, const Work& work) {
  std::vector<std::thread> threads;
  std::vector<std::function<void()>> late;
  work(jboost::Pool{n_threads,
                    [&](std::function<void()> task) {
                      const int64_t when = draw(0, 7);
                      if (when == 0)
                        task();
                      else if (when == 1)
                        late.push_back(std::move(task));
                      else
                        threads.emplace_back(std::move(task));
                    },
                    draw(0, 1) ? 1 : 1000});
  for (auto& task : late) task();
  for (auto& thread : threads) thread.join();
}

// The number of cases: the first argument, or a default.
inline int64_t n_cases(int argc, char** argv, int64_t otherwise) { return argc > 1 ? std::atoll(argv[1]) : otherwise; }

#endif  // JBOOST_TESTS_FUZZ_H_
