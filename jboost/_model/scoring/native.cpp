// The scores of a model as a custom call of XLA's foreign function interface, for the platform "cpu".
//
// Arguments: bins uint8|uint16 [..., f, n], feature and threshold int32, missing_right bool [..., t, trees, s],
// categories_right uint32 [..., t, trees, s, words], is_categorical bool [..., f], leaf_value [..., t, leaves, k] and
// start [..., n, k] of one floating type, n_rounds int32 [...]; result as start. Leading dimensions are those of vmap;
// an argument that is not batched has a 1 there.

#include "score.h"

#include "../../_runtime/xla.h"

namespace ffi = xla::ffi;

namespace {

struct Arguments {
  ffi::AnyBuffer bins, feature, threshold, missing_right, categories_right, is_categorical, leaf_value, start, n_rounds;
  bool symmetric, has_missing;
};

// Dimensions after the leading ones.
class Shape {
 public:
  Shape(const ffi::AnyBuffer& buffer, int64_t n_leading) : all_(buffer.dimensions()), n_leading_(n_leading) {}
  int64_t operator[](int64_t axis) const { return all_[n_leading_ + axis]; }

 private:
  jboost::Dimensions all_;
  int64_t n_leading_;
};

bool types_are_right(const Arguments& a, const jboost::Batch& batch, ffi::DataType type) {
  const auto holds = [&](const ffi::AnyBuffer& argument, int64_t rank, ffi::DataType expected) {
    return batch.holds(argument, rank) && argument.element_type() == expected;
  };
  return batch.n_leading() >= 0 && (type == ffi::F32 || type == ffi::F64) &&
         (holds(a.bins, 2, ffi::U8) || holds(a.bins, 2, ffi::U16)) && holds(a.feature, 3, ffi::S32) &&
         holds(a.threshold, 3, ffi::S32) && holds(a.missing_right, 3, ffi::PRED) &&
         holds(a.categories_right, 4, ffi::U32) && holds(a.is_categorical, 1, ffi::PRED) &&
         holds(a.leaf_value, 3, type) && holds(a.start, 2, type) && holds(a.n_rounds, 0, ffi::S32);
}

bool shapes_agree(const Arguments& a, int64_t lead, int64_t n_rows, int64_t n_outputs) {
  const Shape bins(a.bins, lead), trees(a.feature, lead), threshold(a.threshold, lead), missing(a.missing_right, lead);
  const Shape sets(a.categories_right, lead), leaves(a.leaf_value, lead), start(a.start, lead);
  for (int64_t axis = 0; axis < 3; ++axis)
    if (threshold[axis] != trees[axis] || missing[axis] != trees[axis] || sets[axis] != trees[axis]) return false;
  const int64_t n_slots = trees[2], n_leaves = leaves[1];
  const bool is_power = n_leaves > 0 && n_leaves <= 65536 && (n_leaves & (n_leaves - 1)) == 0;
  const bool is_deep = a.symmetric ? n_slots <= 16 && int64_t{1} << n_slots == n_leaves : n_slots + 1 == n_leaves;
  return is_power && is_deep && leaves[0] == trees[0] && leaves[2] == n_outputs &&
         (trees[1] == 1 || trees[1] == n_outputs) && (bins[0] > 0 || n_slots == 0) &&
         Shape(a.is_categorical, lead)[0] == bins[0] && bins[1] == n_rows && start[0] == n_rows && start[1] == n_outputs;
}

template <typename T>
jboost::Scoring<T> describe(const Arguments& a, const jboost::Batch& batch, int64_t i) {
  const int64_t lead = batch.n_leading();
  const Shape trees(a.feature, lead), start(a.start, lead);
  jboost::Scoring<T> p{};
  p.wide_bins = a.bins.element_type() == ffi::U16;
  p.bins = p.wide_bins ? static_cast<const void*>(batch.element<uint16_t>(a.bins, i)) : batch.element<uint8_t>(a.bins, i);
  p.feature = batch.element<int32_t>(a.feature, i);
  p.threshold = batch.element<int32_t>(a.threshold, i);
  p.missing_right = batch.element<bool>(a.missing_right, i);
  p.categories_right = batch.element<uint32_t>(a.categories_right, i);
  p.is_categorical = batch.element<bool>(a.is_categorical, i);
  p.leaf_value = batch.element<T>(a.leaf_value, i);
  p.start = batch.element<T>(a.start, i);
  p.n_rows = start[0];
  p.n_outputs = start[1];
  p.n_features = Shape(a.bins, lead)[0];
  p.n_rounds = std::clamp<int64_t>(*batch.element<int32_t>(a.n_rounds, i), 0, trees[0]);
  p.n_trees = trees[1];
  p.n_slots = trees[2];
  p.n_words = Shape(a.categories_right, lead)[3];
  while (int64_t{1} << p.depth < Shape(a.leaf_value, lead)[1]) ++p.depth;
  p.symmetric = a.symmetric;
  p.has_missing = a.has_missing;
  return p;
}

template <typename T>
ffi::Error score_batch(const Arguments& a, const jboost::Batch& batch, T* out, const jboost::Pool& pool) {
  return jboost::for_each_element(pool, batch.size(), [&](int64_t i, const jboost::Pool& threads) {
    jboost::Scoring<T> p = describe<T>(a, batch, i);
    p.out = out + i * p.n_rows * p.n_outputs;
    jboost::score_rows(p, threads);
  });
}

ffi::Error score(ffi::ThreadPool threads, ffi::AnyBuffer bins, ffi::AnyBuffer feature, ffi::AnyBuffer threshold,
                 ffi::AnyBuffer missing_right, ffi::AnyBuffer categories_right, ffi::AnyBuffer is_categorical,
                 ffi::AnyBuffer leaf_value, ffi::AnyBuffer start, ffi::AnyBuffer n_rounds,
                 ffi::Result<ffi::AnyBuffer> out, bool symmetric, bool has_missing) {
  const Arguments a{bins,       feature, threshold, missing_right, categories_right, is_categorical,
                    leaf_value, start,   n_rounds,  symmetric,     has_missing};
  const jboost::Dimensions result = out->dimensions();
  const jboost::Batch batch(result, 2);
  if (!types_are_right(a, batch, out->element_type())) return jboost::invalid("jboost scoring: unexpected ranks or types");
  const int64_t lead = batch.n_leading();
  if (!shapes_agree(a, lead, result[lead], result[lead + 1])) return jboost::invalid("jboost scoring: shapes disagree");
  if (out->element_count() == 0) return ffi::Error::Success();
  const jboost::Pool pool = jboost::pool_of(threads);
  return out->element_type() == ffi::F32 ? score_batch(a, batch, static_cast<float*>(out->untyped_data()), pool)
                                         : score_batch(a, batch, static_cast<double*>(out->untyped_data()), pool);
}

}  // namespace

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
