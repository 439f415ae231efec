// The histogram kernel as custom calls of XLA's foreign function interface, for the platform "cpu".
//
// jboost_histogram takes bins uint8|uint16 [..., f, n], slot uint32 [..., n], values int32 [..., n, c]; result int32 [..., b, c, l, f].
// Leading dimensions are those of vmap; an argument that is not batched has a 1 there.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <new>
#include <utility>
#include <vector>

#include "kernel.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

using Dimensions = ffi::AnyBuffer::Dimensions;

// The number of the element of an argument that belongs to an element of the batch of the result.
int64_t element(int64_t index, const Dimensions& result, const Dimensions& argument, int64_t n_leading) {
  int64_t stride = 1, number = 0;
  for (int64_t axis = n_leading - 1; axis >= 0; --axis) {
    const int64_t position = index % result[axis];
    index /= result[axis];
    number += (argument[axis] == 1 ? 0 : position) * stride;
    stride *= argument[axis];
  }
  return number;
}

ffi::Error build(ffi::ThreadPool thread_pool, ffi::AnyBuffer bins, ffi::AnyBuffer slot, ffi::AnyBuffer values,
                 ffi::Result<ffi::AnyBuffer> out) {
  const Dimensions bins_shape = bins.dimensions(), slot_shape = slot.dimensions();
  const Dimensions values_shape = values.dimensions(), shape = out->dimensions();
  const int64_t n_leading = static_cast<int64_t>(shape.size()) - 4;
  const bool wide_bins = bins.element_type() == ffi::U16;
  if (n_leading < 0 || static_cast<int64_t>(bins_shape.size()) != n_leading + 2 ||
      static_cast<int64_t>(slot_shape.size()) != n_leading + 1 ||
      static_cast<int64_t>(values_shape.size()) != n_leading + 2 ||
      (!wide_bins && bins.element_type() != ffi::U8) || slot.element_type() != ffi::U32 ||
      values.element_type() != ffi::S32 || out->element_type() != ffi::S32)
    return ffi::Error(ffi::ErrorCode::kInvalidArgument, "jboost histogram: unexpected ranks or types");

  const int64_t n_codes = shape[n_leading], n_statistics = shape[n_leading + 1], n_slots = shape[n_leading + 2];
  const int64_t n_features = shape[n_leading + 3], n_rows = slot_shape[n_leading];
  if (bins_shape[n_leading] != n_features || bins_shape[n_leading + 1] != n_rows ||
      values_shape[n_leading] != n_rows || values_shape[n_leading + 1] != n_statistics)
    return ffi::Error(ffi::ErrorCode::kInvalidArgument, "jboost histogram: shapes disagree");
  if (!jboost::fits(n_slots, n_codes))
    return ffi::Error(ffi::ErrorCode::kInvalidArgument, "jboost histogram: too many slots");
  if (out->element_count() == 0) return ffi::Error::Success();

  int64_t size = 1;
  for (int64_t axis = 0; axis < n_leading; ++axis) size *= shape[axis];
  try {
    std::vector<jboost::Problem> batch(size);
    for (int64_t i = 0; i < size; ++i) {
      jboost::Problem& p = batch[i];
      p.bins = static_cast<const char*>(bins.untyped_data()) +
               element(i, shape, bins_shape, n_leading) * n_features * n_rows * (wide_bins ? 2 : 1);
      p.wide_bins = wide_bins;
      p.slot = static_cast<const uint32_t*>(slot.untyped_data()) + element(i, shape, slot_shape, n_leading) * n_rows;
      p.values = static_cast<const int32_t*>(values.untyped_data()) +
                 element(i, shape, values_shape, n_leading) * n_rows * n_statistics;
      p.out = static_cast<int32_t*>(out->untyped_data()) + i * n_codes * n_statistics * n_slots * n_features;
      p.n_rows = n_rows;
      p.n_features = n_features;
      p.n_statistics = n_statistics;
      p.n_slots = n_slots;
      p.n_codes = n_codes;
    }
    const jboost::Pool pool{std::max<int64_t>(1, thread_pool.num_threads()),
                            [&](std::function<void()> task) { thread_pool.Schedule(std::move(task)); }};
    jboost::build_histograms(batch, pool);
  } catch (const std::bad_alloc&) {
    return ffi::Error(ffi::ErrorCode::kResourceExhausted, "jboost histogram: out of memory");
  }
  return ffi::Error::Success();
}

// Children of l nodes: those that were built, and their siblings, by subtraction.
//
// Arguments: parent and built int32 [..., b, c, l, f], built_right bool [..., l]; result int32 [..., b, c, 2 l, f].
ffi::Error add_siblings(ffi::ThreadPool thread_pool, ffi::Buffer<ffi::S32> parent, ffi::Buffer<ffi::S32> built,
                        ffi::Buffer<ffi::PRED> built_right, ffi::Result<ffi::Buffer<ffi::S32>> out) {
  const Dimensions shape = parent.dimensions();
  const int64_t rank = static_cast<int64_t>(shape.size());
  if (rank < 4 || built.element_count() != parent.element_count() ||
      out->element_count() != 2 * parent.element_count())
    return ffi::Error(ffi::ErrorCode::kInvalidArgument, "jboost siblings: shapes disagree");
  if (parent.element_count() == 0) return ffi::Error::Success();
  const int64_t n_nodes = shape[rank - 2], n_features = shape[rank - 1], n_planes = shape[rank - 4] * shape[rank - 3];
  const int64_t total_planes = static_cast<int64_t>(parent.element_count()) / (n_nodes * n_features);
  if (static_cast<int64_t>(built_right.element_count()) * n_planes != total_planes * n_nodes)
    return ffi::Error(ffi::ErrorCode::kInvalidArgument, "jboost siblings: shapes disagree");

  const jboost::Pool pool{std::max<int64_t>(1, thread_pool.num_threads()),
                          [&](std::function<void()> task) { thread_pool.Schedule(std::move(task)); }};
  const int64_t cells = static_cast<int64_t>(parent.element_count());
  const int64_t workers = std::max<int64_t>(1, std::min(pool.n_threads, cells / pool.work_per_thread));
  const int64_t planes_per_unit = std::max<int64_t>(1, total_planes / (8 * workers));
  std::atomic<int64_t> next{0};
  jboost::in_parallel(pool, workers, [&](int64_t) {
    for (int64_t first; (first = planes_per_unit * next++) < total_planes;) {
      for (int64_t plane = first; plane < std::min(first + planes_per_unit, total_planes); ++plane) {
        const bool* on_right = built_right.typed_data() + plane / n_planes * n_nodes;
        for (int64_t node = 0; node < n_nodes; ++node) {
          const int64_t from = (plane * n_nodes + node) * n_features;
          const int32_t* whole = parent.typed_data() + from;
          const int32_t* part = built.typed_data() + from;
          int32_t* to_built = out->typed_data() + 2 * from + (on_right[node] ? n_features : 0);
          int32_t* to_sibling = out->typed_data() + 2 * from + (on_right[node] ? 0 : n_features);
          for (int64_t f = 0; f < n_features; ++f) {
            to_built[f] = part[f];
            to_sibling[f] = whole[f] - part[f];
          }
        }
      }
    }
  });
  return ffi::Error::Success();
}

}  // namespace

#ifdef _WIN32
#define JBOOST_EXPORT __declspec(dllexport)
#else
#define JBOOST_EXPORT __attribute__((visibility("default")))
#endif

extern "C" JBOOST_EXPORT XLA_FFI_Error* jboost_histogram(XLA_FFI_CallFrame* call_frame);

XLA_FFI_DEFINE_HANDLER_SYMBOL(jboost_histogram, build,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());

extern "C" JBOOST_EXPORT XLA_FFI_Error* jboost_siblings(XLA_FFI_CallFrame* call_frame);

XLA_FFI_DEFINE_HANDLER_SYMBOL(jboost_siblings, add_siblings,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::PRED>>()
                                  .Ret<ffi::Buffer<ffi::S32>>());
