// What the custom calls of all rooms share: batches of vmap, and XLA's threads as a Pool.

#ifndef JBOOST_XLA_H_
#define JBOOST_XLA_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <new>
#include <utility>

#include "parallel.h"
#include "xla/ffi/api/ffi.h"

#ifdef _WIN32
#define JBOOST_EXPORT __declspec(dllexport)
#else
#define JBOOST_EXPORT __attribute__((visibility("default")))
#endif

namespace jboost {

using Dimensions = xla::ffi::AnyBuffer::Dimensions;

// The leading dimensions of a result under vmap. An argument that is not batched has a 1 there.
class Batch {
 public:
  Batch(Dimensions result, int64_t rank_of_one)
      : result_(result), n_leading_(static_cast<int64_t>(result.size()) - rank_of_one) {
    for (int64_t axis = 0; axis < n_leading_; ++axis) size_ *= result[axis];
  }
  int64_t n_leading() const { return n_leading_; }
  int64_t size() const { return size_; }

  // The element of an argument that belongs to an element of the result; its dimensions follow the leading ones.
  template <typename Value>
  const Value* element(const xla::ffi::AnyBuffer& argument, int64_t index) const {
    const Dimensions shape = argument.dimensions();
    int64_t stride = 1, number = 0, size = 1;
    for (int64_t axis = n_leading_ - 1; axis >= 0; --axis) {
      const int64_t position = index % result_[axis];
      index /= result_[axis];
      number += (shape[axis] == 1 ? 0 : position) * stride;
      stride *= shape[axis];
    }
    for (int64_t axis = n_leading_; axis < static_cast<int64_t>(shape.size()); ++axis) size *= shape[axis];
    return static_cast<const Value*>(argument.untyped_data()) + number * size;
  }
  // Whether an argument has this many dimensions after the leading ones, and leading ones that fit.
  bool holds(const xla::ffi::AnyBuffer& argument, int64_t rank_of_one) const {
    const Dimensions shape = argument.dimensions();
    if (static_cast<int64_t>(shape.size()) != n_leading_ + rank_of_one) return false;
    for (int64_t axis = 0; axis < n_leading_; ++axis)
      if (shape[axis] != 1 && shape[axis] != result_[axis]) return false;
    return true;
  }

 private:
  Dimensions result_;
  int64_t n_leading_, size_ = 1;
};

inline Pool pool_of(xla::ffi::ThreadPool& threads) {
  return {std::max<int64_t>(1, std::min<int64_t>(threads.num_threads(), thread_limit())),
          [&threads](std::function<void()> task) { threads.Schedule(std::move(task)); }};
}

// Runs work(i, pool) for every element of a batch: one after the other with all threads, or, if there are many, each on
// a thread of its own. The work may throw std::bad_alloc.
template <typename Work>
xla::ffi::Error for_each_element(const Pool& pool, int64_t size, const Work& work) {
  std::atomic<bool> out_of_memory{false};
  const auto guarded = [&](int64_t i, const Pool& threads) {
    try {
      work(i, threads);
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
  };
  if (size < 2 * pool.n_threads || pool.n_threads <= 1) {
    for (int64_t i = 0; i < size; ++i) guarded(i, pool);
  } else {
    const Pool alone{1, {}};
    Crew(pool, pool.n_threads).run(size, [&](int64_t i, int64_t) { guarded(i, alone); });
  }
  if (out_of_memory) return xla::ffi::Error(xla::ffi::ErrorCode::kResourceExhausted, "jboost: out of memory");
  return xla::ffi::Error::Success();
}

inline xla::ffi::Error invalid(const char* what) {
  return xla::ffi::Error(xla::ffi::ErrorCode::kInvalidArgument, what);
}

}  // namespace jboost

#endif  // JBOOST_XLA_H_
