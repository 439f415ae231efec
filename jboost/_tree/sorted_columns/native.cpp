// Growth from sorted columns as a custom call of XLA's foreign function interface, for the platform "cpu".
//
// Arguments: columns uint32 [..., f, n, 2], the rows of each by rising code, and their codes; g and h [..., n, k], active
// bool [..., n], allowed bool [..., d, f], scale [..., c] and hyper [..., 4]. All floats are of one type; c is 2 k, or one
// more where rows are counted. Results: feature, threshold int32, missing_right bool, gain [..., 2^d - 1], leaf int32
// [..., n].

#include "grow.h"

#include "../../_runtime/xla.h"

namespace ffi = xla::ffi;

namespace {

struct Arguments {
  ffi::AnyBuffer columns, g, h, active, allowed, scale, hyper;
};

struct Results {
  ffi::AnyBuffer feature, threshold, missing_right, gain, leaf;
};

struct Options {
  int64_t n_codes, min_child_samples;
  bool has_missing;
};

const char* mistake(const Arguments& a, const Results& r, const jboost::Batch& batch, const Options& o) {
  const auto type = a.scale.element_type();
  const int64_t lead = batch.n_leading();
  if (lead < 0 || !batch.holds(a.columns, 3) || !batch.holds(a.g, 2) || !batch.holds(a.h, 2) ||
      !batch.holds(a.active, 1) || !batch.holds(a.allowed, 2) || !batch.holds(a.scale, 1) || !batch.holds(a.hyper, 1) ||
      !batch.holds(r.feature, 1) || !batch.holds(r.threshold, 1) || !batch.holds(r.missing_right, 1) ||
      !batch.holds(r.gain, 1))
    return "jboost sorted tree: unexpected ranks";
  if (a.columns.element_type() != ffi::U32 || (type != ffi::F32 && type != ffi::F64) || a.g.element_type() != type ||
      a.h.element_type() != type || a.hyper.element_type() != type || r.gain.element_type() != type ||
      a.active.element_type() != ffi::PRED || a.allowed.element_type() != ffi::PRED ||
      r.feature.element_type() != ffi::S32 || r.threshold.element_type() != ffi::S32 ||
      r.missing_right.element_type() != ffi::PRED || r.leaf.element_type() != ffi::S32)
    return "jboost sorted tree: unexpected types";
  const auto size = [lead](const ffi::AnyBuffer& buffer, int64_t axis) { return buffer.dimensions()[lead + axis]; };
  const int64_t depth = size(a.allowed, 0), f = size(a.allowed, 1), n = size(a.columns, 1), k = size(a.g, 1);
  const int64_t slots = (int64_t{1} << std::min<int64_t>(depth, 40)) - 1;
  if (size(a.columns, 0) != f || size(a.columns, 2) != 2 || size(a.g, 0) != n || size(a.h, 0) != n ||
      size(a.h, 1) != k || size(a.active, 0) != n || size(r.leaf, 0) != n ||
      size(a.scale, 0) != 2 * k + (o.min_child_samples > 0) || size(a.hyper, 0) != 4 || size(r.feature, 0) != slots ||
      size(r.threshold, 0) != slots || size(r.missing_right, 0) != slots || size(r.gain, 0) != slots)
    return "jboost sorted tree: shapes disagree";
  if (n < 1 || n >= (int64_t{1} << 31) || f < 1 || depth < 1 || depth > 24 || k < 1 || o.n_codes < 1)
    return "jboost sorted tree: sizes out of range";
  return nullptr;
}

template <typename T>
ffi::Error grow(const jboost::Pool& pool, const Arguments& a, const Results& r, const jboost::Batch& batch,
                const Options& o) {
  return jboost::for_each_element(pool, batch.size(), [&](int64_t i, const jboost::Pool& threads) {
    const int64_t lead = batch.n_leading();
    const auto size = [lead](const ffi::AnyBuffer& buffer, int64_t axis) { return buffer.dimensions()[lead + axis]; };
    const auto result = [&](const ffi::AnyBuffer& buffer, auto* type) {
      return const_cast<decltype(type)>(batch.element<std::remove_pointer_t<decltype(type)>>(buffer, i));
    };
    const T* hyper = batch.element<T>(a.hyper, i);
    jboost::SortedGrowth<T> p{};
    p.columns = reinterpret_cast<const jboost::Entry*>(batch.element<uint32_t>(a.columns, i));
    p.g = batch.element<T>(a.g, i);
    p.h = batch.element<T>(a.h, i);
    p.active = batch.element<bool>(a.active, i);
    p.allowed = batch.element<bool>(a.allowed, i);
    p.rules = {hyper[0], hyper[1], hyper[2], hyper[3], batch.element<T>(a.scale, i), size(a.g, 1),
               static_cast<int32_t>(o.min_child_samples), o.has_missing};
    p.n_rows = size(a.columns, 1);
    p.n_features = size(a.allowed, 1);
    p.n_codes = o.n_codes;
    p.depth = size(a.allowed, 0);
    p.feature = result(r.feature, static_cast<int32_t*>(nullptr));
    p.threshold = result(r.threshold, static_cast<int32_t*>(nullptr));
    p.missing_right = result(r.missing_right, static_cast<bool*>(nullptr));
    p.gain = result(r.gain, static_cast<T*>(nullptr));
    p.leaf = result(r.leaf, static_cast<int32_t*>(nullptr));
    jboost::grow_sorted(p, threads);
  });
}

ffi::Error run(ffi::ThreadPool threads, ffi::AnyBuffer columns, ffi::AnyBuffer g, ffi::AnyBuffer h,
               ffi::AnyBuffer active, ffi::AnyBuffer allowed, ffi::AnyBuffer scale, ffi::AnyBuffer hyper,
               ffi::Result<ffi::AnyBuffer> feature, ffi::Result<ffi::AnyBuffer> threshold,
               ffi::Result<ffi::AnyBuffer> missing_right, ffi::Result<ffi::AnyBuffer> gain,
               ffi::Result<ffi::AnyBuffer> leaf, int32_t n_codes, int32_t min_child_samples, bool has_missing) {
  const Arguments arguments{columns, g, h, active, allowed, scale, hyper};
  const Results results{*feature, *threshold, *missing_right, *gain, *leaf};
  const Options options{n_codes, min_child_samples, has_missing};
  const jboost::Batch batch(leaf->dimensions(), 1);
  if (const char* what = mistake(arguments, results, batch, options)) return jboost::invalid(what);
  const jboost::Pool pool = jboost::pool_of(threads);
  return scale.element_type() == ffi::F32 ? grow<float>(pool, arguments, results, batch, options)
                                          : grow<double>(pool, arguments, results, batch, options);
}

}  // namespace

extern "C" JBOOST_EXPORT XLA_FFI_Error* jboost_grow_sorted(XLA_FFI_CallFrame* call_frame);

XLA_FFI_DEFINE_HANDLER_SYMBOL(jboost_grow_sorted, run,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<int32_t>("n_codes")
                                  .Attr<int32_t>("min_child_samples")
                                  .Attr<bool>("has_missing"));
