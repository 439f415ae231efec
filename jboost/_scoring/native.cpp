// The scores of a model as a custom call of XLA's foreign function interface, for the platform "cpu".
//
// Arguments: bins uint8|uint16 [..., f, n], feature and threshold int32, missing_right bool [..., t, trees, s],
// categories_right uint32 [..., t, trees, s, words], is_categorical bool [..., f], leaf_value [..., t, leaves, k] and
// start [..., n, k] of one floating type, n_rounds int32 [...]; result as start. Leading dimensions are those of vmap;
// an argument that is not batched has a 1 there.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <new>
#include <utility>
#include <vector>

#include "score.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

using Dimensions = ffi::AnyBuffer::Dimensions;

struct Arguments {
  ffi::AnyBuffer bins, feature, threshold, missing_right, categories_right, is_categorical, leaf_value, start, n_rounds;
  bool symmetric, has_missing;
};

// Where an argument has what belongs to an element of the batch of the result.
template <typename T>
const T* element(int64_t index, const Dimensions& result, const ffi::AnyBuffer& argument, int64_t n_leading) {
  const Dimensions shape = argument.dimensions();
  int64_t stride = 1;
  for (size_t axis = n_leading; axis < shape.size(); ++axis) stride *= shape[axis];
  int64_t offset = 0;
  for (int64_t axis = n_leading - 1; axis >= 0; --axis) {
    const int64_t position = index % result[axis];
    index /= result[axis];
    offset += (shape[axis] == 1 ? 0 : position) * stride;
    stride *= shape[axis];
  }
  return static_cast<const T*>(argument.untyped_data()) + offset;
}

bool has_rank(const ffi::AnyBuffer& argument, int64_t rank, ffi::DataType type) {
  return static_cast<int64_t>(argument.dimensions().size()) == rank && argument.element_type() == type;
}

const char* what_is_wrong(const Arguments& a, int64_t n, ffi::DataType type) {
  const bool wide = a.bins.element_type() == ffi::U16;
  if (n < 0 || (type != ffi::F32 && type != ffi::F64) || !has_rank(a.bins, n + 2, wide ? ffi::U16 : ffi::U8) ||
      !has_rank(a.feature, n + 3, ffi::S32) || !has_rank(a.threshold, n + 3, ffi::S32) ||
      !has_rank(a.missing_right, n + 3, ffi::PRED) || !has_rank(a.categories_right, n + 4, ffi::U32) ||
      !has_rank(a.is_categorical, n + 1, ffi::PRED) || !has_rank(a.leaf_value, n + 3, type) ||
      !has_rank(a.start, n + 2, type) || !has_rank(a.n_rounds, n, ffi::S32))
    return "jboost scoring: unexpected ranks or types";
  const Dimensions trees = a.feature.dimensions(), leaves = a.leaf_value.dimensions();
  for (int64_t axis = n; axis < n + 3; ++axis)
    if (a.threshold.dimensions()[axis] != trees[axis] || a.missing_right.dimensions()[axis] != trees[axis] ||
        a.categories_right.dimensions()[axis] != trees[axis])
      return "jboost scoring: the fields of the trees differ in shape";
  if (leaves[n] != trees[n] || (trees[n + 1] != 1 && trees[n + 1] != leaves[n + 2]) || leaves[n + 1] < 1 ||
      leaves[n + 1] > 65536 || trees[n + 2] > 65535 ||
      (a.symmetric ? trees[n + 2] > 16 || int64_t{1} << trees[n + 2] != leaves[n + 1] : trees[n + 2] + 1 != leaves[n + 1]) ||
      (leaves[n + 1] & (leaves[n + 1] - 1)) != 0 || a.start.dimensions()[n + 1] != leaves[n + 2])
    return "jboost scoring: trees and leaf values disagree";
  const Dimensions bins = a.bins.dimensions();
  if (bins[n + 1] != a.start.dimensions()[n] || bins[n] != a.is_categorical.dimensions()[n] ||
      (bins[n] == 0 && trees[n + 2] > 0))
    return "jboost scoring: shapes disagree";
  return nullptr;
}

template <typename T>
jboost::Scoring<T> describe(const Arguments& a, const Dimensions& result, int64_t n, int64_t i, void* out) {
  jboost::Scoring<T> p{};
  const Dimensions trees = a.feature.dimensions();
  p.wide_bins = a.bins.element_type() == ffi::U16;
  if (p.wide_bins)
    p.bins = element<uint16_t>(i, result, a.bins, n);
  else
    p.bins = element<uint8_t>(i, result, a.bins, n);
  p.feature = element<int32_t>(i, result, a.feature, n);
  p.threshold = element<int32_t>(i, result, a.threshold, n);
  p.missing_right = element<bool>(i, result, a.missing_right, n);
  p.categories_right = element<uint32_t>(i, result, a.categories_right, n);
  p.is_categorical = element<bool>(i, result, a.is_categorical, n);
  p.leaf_value = element<T>(i, result, a.leaf_value, n);
  p.start = element<T>(i, result, a.start, n);
  p.n_rows = result[n];
  p.n_outputs = result[n + 1];
  p.out = static_cast<T*>(out) + i * p.n_rows * p.n_outputs;
  p.n_features = a.bins.dimensions()[n];
  p.n_rounds = std::clamp<int64_t>(*element<int32_t>(i, result, a.n_rounds, n), 0, trees[n]);
  p.n_trees = trees[n + 1];
  p.n_slots = trees[n + 2];
  p.n_words = a.categories_right.dimensions()[n + 3];
  while (int64_t{1} << p.depth < a.leaf_value.dimensions()[n + 1]) ++p.depth;
  p.symmetric = a.symmetric;
  p.has_missing = a.has_missing;
  return p;
}

template <typename T>
void run(const Arguments& a, const Dimensions& result, int64_t n, void* out, const jboost::Pool& pool) {
  int64_t size = 1;
  for (int64_t axis = 0; axis < n; ++axis) size *= result[axis];
  std::vector<jboost::Scoring<T>> batch;
  for (int64_t i = 0; i < size; ++i) batch.push_back(describe<T>(a, result, n, i, out));
  jboost::score_all(batch, pool);
}

ffi::Error score(ffi::ThreadPool thread_pool, ffi::AnyBuffer bins, ffi::AnyBuffer feature, ffi::AnyBuffer threshold,
                 ffi::AnyBuffer missing_right, ffi::AnyBuffer categories_right, ffi::AnyBuffer is_categorical,
                 ffi::AnyBuffer leaf_value, ffi::AnyBuffer start, ffi::AnyBuffer n_rounds,
                 ffi::Result<ffi::AnyBuffer> out, bool symmetric, bool has_missing) {
  const Arguments a{bins,       feature, threshold, missing_right, categories_right, is_categorical,
                    leaf_value, start,   n_rounds,  symmetric,     has_missing};
  const Dimensions result = out->dimensions();
  const int64_t n = static_cast<int64_t>(result.size()) - 2;
  if (const char* wrong = what_is_wrong(a, n, out->element_type()))
    return ffi::Error(ffi::ErrorCode::kInvalidArgument, wrong);
  if (start.dimensions()[n] != result[n] || start.dimensions()[n + 1] != result[n + 1])
    return ffi::Error(ffi::ErrorCode::kInvalidArgument, "jboost scoring: the result has another shape than start");
  if (out->element_count() == 0) return ffi::Error::Success();
  const jboost::Pool pool{std::max<int64_t>(1, thread_pool.num_threads()),
                          [&](std::function<void()> task) { thread_pool.Schedule(std::move(task)); }};
  try {
    if (out->element_type() == ffi::F32)
      run<float>(a, result, n, out->untyped_data(), pool);
    else
      run<double>(a, result, n, out->untyped_data(), pool);
  } catch (const std::bad_alloc&) {
    return ffi::Error(ffi::ErrorCode::kResourceExhausted, "jboost scoring: out of memory");
  }
  return ffi::Error::Success();
}

}  // namespace

#ifdef _WIN32
#define JBOOST_EXPORT __declspec(dllexport)
#else
#define JBOOST_EXPORT __attribute__((visibility("default")))
#endif

extern "C" JBOOST_EXPORT XLA_FFI_Error* jboost_score(XLA_FFI_CallFrame* call_frame);

XLA_FFI_DEFINE_HANDLER_SYMBOL(jboost_score, score,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<bool>("symmetric")
                                  .Attr<bool>("has_missing"));
