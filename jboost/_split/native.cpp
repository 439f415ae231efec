// The threshold search as a custom call of XLA's foreign function interface, for the platform "cpu".
//
// Arguments: histogram int32 [..., b, c, l, f], scale [..., c] and hyper [..., 4] of one floating type; results gain
// and candidate int32 [..., l or 1, f]. Leading dimensions are those of vmap, the same everywhere.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <utility>

#include "../parallel.h"
#include "search.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using jboost::internal::kMostColumns;
using jboost::internal::search_columns;

namespace {

// Compiled for several instruction sets; the loader takes the best that the processor has.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define JBOOST_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define JBOOST_CLONES
#endif

JBOOST_CLONES void search(const jboost::Search<float>& p, int64_t first, int64_t n, int32_t* memory) {
  n > 16 ? search_columns<32>(p, first, n, memory) : search_columns<16>(p, first, n, memory);
}
JBOOST_CLONES void search(const jboost::Search<double>& p, int64_t first, int64_t n, int32_t* memory) {
  n > 16 ? search_columns<32>(p, first, n, memory) : search_columns<16>(p, first, n, memory);
}

template <typename T>
void search_all(const jboost::Search<T>& one, int64_t size, const jboost::Pool& pool) {
  const int64_t n_out = (one.symmetric ? 1 : one.n_nodes) * one.n_features;
  const int64_t n_in = one.n_codes * one.n_statistics * one.n_nodes * one.n_features;
  const int64_t work = size * n_in;  // a cell costs some ten additions
  const int64_t workers = std::max<int64_t>(1, std::min(pool.n_threads, work / (pool.work_per_thread / 8)));
  const int64_t per_worker = (one.n_features * size + workers - 1) / workers;
  const int64_t columns = std::max<int64_t>(1, std::min({kMostColumns, per_worker, one.n_features}));
  const int64_t chunks = (one.n_features + columns - 1) / columns;
  std::atomic<int64_t> next{0};
  std::atomic<bool> out_of_memory{false};
  jboost::in_parallel(pool, std::min(workers, chunks * size), [&](int64_t) {
    try {
      std::unique_ptr<int32_t[]> memory(new int32_t[2 * one.n_statistics * one.n_nodes * kMostColumns]);
      for (int64_t unit; (unit = next++) < chunks * size;) {
        const int64_t i = unit / chunks, first = unit % chunks * columns;
        jboost::Search<T> p = one;
        p.histogram += i * n_in;
        p.scale += i * one.n_statistics;
        p.hyper += 4 * i;
        p.gain += i * n_out;
        p.candidate += i * n_out;
        search(p, first, std::min(columns, one.n_features - first), memory.get());
      }
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
  });
  if (out_of_memory) throw std::bad_alloc();
}

template <typename T>
void run(const jboost::Pool& pool, int64_t size, jboost::Search<T> p, const ffi::AnyBuffer& scale,
         const ffi::AnyBuffer& hyper, void* gain) {
  p.scale = static_cast<const T*>(scale.untyped_data());
  p.hyper = static_cast<const T*>(hyper.untyped_data());
  p.gain = static_cast<T*>(gain);
  search_all(p, size, pool);
}

template <typename T>
jboost::Search<T> describe(const ffi::AnyBuffer& histogram, int64_t n_leading, bool symmetric, bool has_missing,
                           int32_t min_child_samples, void* candidate) {
  const auto shape = histogram.dimensions();
  jboost::Search<T> p{};
  p.histogram = static_cast<const int32_t*>(histogram.untyped_data());
  p.n_codes = shape[n_leading];
  p.n_statistics = shape[n_leading + 1];
  p.n_nodes = shape[n_leading + 2];
  p.n_features = shape[n_leading + 3];
  p.symmetric = symmetric;
  p.has_missing = has_missing;
  p.min_child_samples = min_child_samples;
  p.candidate = static_cast<int32_t*>(candidate);
  return p;
}

ffi::Error search_thresholds(ffi::ThreadPool thread_pool, ffi::AnyBuffer histogram, ffi::AnyBuffer scale,
                             ffi::AnyBuffer hyper, ffi::Result<ffi::AnyBuffer> gain, ffi::Result<ffi::AnyBuffer> candidate,
                             bool symmetric, bool has_missing, int32_t min_child_samples) {
  const auto shape = histogram.dimensions(), found = gain->dimensions();
  const int64_t n_leading = static_cast<int64_t>(shape.size()) - 4;
  const auto type = gain->element_type();
  if (n_leading < 0 || static_cast<int64_t>(found.size()) != n_leading + 2 || scale.element_type() != type ||
      hyper.element_type() != type || histogram.element_type() != ffi::S32 || candidate->element_type() != ffi::S32 ||
      (type != ffi::F32 && type != ffi::F64))
    return ffi::Error(ffi::ErrorCode::kInvalidArgument, "jboost split: unexpected ranks or types");
  int64_t size = 1;
  for (int64_t axis = 0; axis < n_leading; ++axis) size *= shape[axis];
  const int64_t nodes = symmetric ? 1 : shape[n_leading + 2];
  if (found[n_leading] != nodes || found[n_leading + 1] != shape[n_leading + 3] ||
      static_cast<int64_t>(scale.element_count()) != size * shape[n_leading + 1] ||
      static_cast<int64_t>(hyper.element_count()) != size * 4)
    return ffi::Error(ffi::ErrorCode::kInvalidArgument, "jboost split: shapes disagree");
  if (gain->element_count() == 0) return ffi::Error::Success();

  const jboost::Pool pool{std::max<int64_t>(1, thread_pool.num_threads()),
                          [&](std::function<void()> task) { thread_pool.Schedule(std::move(task)); }};
  try {
    if (type == ffi::F32)
      run(pool, size,
          describe<float>(histogram, n_leading, symmetric, has_missing, min_child_samples, candidate->untyped_data()),
          scale, hyper, gain->untyped_data());
    else
      run(pool, size,
          describe<double>(histogram, n_leading, symmetric, has_missing, min_child_samples, candidate->untyped_data()),
          scale, hyper, gain->untyped_data());
  } catch (const std::bad_alloc&) {
    return ffi::Error(ffi::ErrorCode::kResourceExhausted, "jboost split: out of memory");
  }
  return ffi::Error::Success();
}

}  // namespace

#ifdef _WIN32
#define JBOOST_EXPORT __declspec(dllexport)
#else
#define JBOOST_EXPORT __attribute__((visibility("default")))
#endif

extern "C" JBOOST_EXPORT XLA_FFI_Error* jboost_search_thresholds(XLA_FFI_CallFrame* call_frame);

XLA_FFI_DEFINE_HANDLER_SYMBOL(jboost_search_thresholds, search_thresholds,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<bool>("symmetric")
                                  .Attr<bool>("has_missing")
                                  .Attr<int32_t>("min_child_samples"));
