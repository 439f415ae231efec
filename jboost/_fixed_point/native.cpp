// Fixed-point numbers and their sums as custom calls of XLA's foreign function interface, for the platform "cpu".
//
// jboost_quantise: values [..., n, c]; results int32 [..., n, c] and scale [..., c].
// jboost_sum_by_group: values [..., n, c], group int32 [..., n], or [..., 0] for one group of all; results int32 [..., groups, c, limbs], scale [..., c]
// and the bits of a limb int32 [..., c].

#include "kernel.h"

#include "../xla.h"

namespace ffi = xla::ffi;

namespace {

bool are_floats(const ffi::AnyBuffer& values, const ffi::AnyBuffer& scale) {
  return values.element_type() == scale.element_type() &&
         (values.element_type() == ffi::F32 || values.element_type() == ffi::F64);
}

template <typename T>
ffi::Error quantise_as(const jboost::Pool& pool, const jboost::Batch& batch, const ffi::AnyBuffer& values,
                       ffi::AnyBuffer out, ffi::AnyBuffer scale) {
  const int64_t n = out.dimensions()[batch.n_leading()], c = out.dimensions()[batch.n_leading() + 1];
  return jboost::for_each_element(pool, batch.size(), [&](int64_t i, const jboost::Pool& threads) {
    jboost::Crew crew(threads, threads.workers_for(n * c));
    jboost::FixedPoint<T> fixed({batch.element<T>(values, i), n, c}, &crew);
    fixed.round(static_cast<int32_t*>(out.untyped_data()) + i * n * c);
    for (int64_t column = 0; column < c; ++column) static_cast<T*>(scale.untyped_data())[i * c + column] = fixed.scale(column);
  });
}

ffi::Error quantise(ffi::ThreadPool threads, ffi::AnyBuffer values, ffi::Result<ffi::AnyBuffer> out,
                    ffi::Result<ffi::AnyBuffer> scale) {
  const jboost::Batch batch(out->dimensions(), 2);
  if (batch.n_leading() < 0 || !batch.holds(values, 2) || !batch.holds(*scale, 1) || !are_floats(values, *scale) ||
      out->element_type() != ffi::S32 || out->element_count() != values.element_count())
    return jboost::invalid("jboost fixed point: unexpected ranks or types");
  const jboost::Pool pool = jboost::pool_of(threads);
  return values.element_type() == ffi::F32 ? quantise_as<float>(pool, batch, values, *out, *scale)
                                           : quantise_as<double>(pool, batch, values, *out, *scale);
}

template <typename T>
ffi::Error sum_as(const jboost::Pool& pool, const jboost::Batch& batch, const ffi::AnyBuffer& values,
                  const ffi::AnyBuffer& group, ffi::AnyBuffer out, ffi::AnyBuffer scale, ffi::AnyBuffer bits) {
  const int64_t lead = batch.n_leading(), n = values.dimensions()[lead];
  const bool has_groups = group.dimensions()[lead] > 0;
  const int64_t n_groups = out.dimensions()[lead], c = out.dimensions()[lead + 1];
  return jboost::for_each_element(pool, batch.size(), [&](int64_t i, const jboost::Pool& threads) {
    const int64_t workers = threads.workers_for(n * c);
    jboost::Crew crew(threads, workers);
    jboost::FixedPoint<T> fixed({batch.element<T>(values, i), n, c}, &crew);
    int32_t* of_limb = static_cast<int32_t*>(bits.untyped_data()) + i * c;
    for (int64_t column = 0; column < c; ++column) {
      int ceil_log2 = 0;
      while (int64_t{1} << ceil_log2 < fixed.count(column)) ++ceil_log2;
      of_limb[column] = std::min(std::max(31 - ceil_log2, 1), 30);
      static_cast<T*>(scale.untyped_data())[i * c + column] = fixed.scale(column);
    }
    fixed.sum_by_group(has_groups ? batch.element<int32_t>(group, i) : nullptr, n_groups, of_limb, workers,
                       static_cast<int32_t*>(out.untyped_data()) + i * n_groups * c * jboost::n_limbs<T>);
  });
}

ffi::Error sum_by_group(ffi::ThreadPool threads, ffi::AnyBuffer values, ffi::AnyBuffer group,
                        ffi::Result<ffi::AnyBuffer> out, ffi::Result<ffi::AnyBuffer> scale,
                        ffi::Result<ffi::AnyBuffer> bits) {
  const jboost::Batch batch(out->dimensions(), 3);
  const int64_t lead = batch.n_leading();
  if (lead < 0 || !batch.holds(values, 2) || !batch.holds(group, 1) || !batch.holds(*scale, 1) ||
      !batch.holds(*bits, 1) || !are_floats(values, *scale) || group.element_type() != ffi::S32 ||
      out->element_type() != ffi::S32 || bits->element_type() != ffi::S32)
    return jboost::invalid("jboost sums: unexpected ranks or types");
  const bool is_single = values.element_type() == ffi::F32;
  const int64_t n_grouped = group.dimensions()[lead];
  if ((n_grouped != values.dimensions()[lead] && (n_grouped > 0 || out->dimensions()[lead] != 1)) ||
      out->dimensions()[lead + 1] != values.dimensions()[lead + 1] ||
      out->dimensions()[lead + 2] != (is_single ? jboost::n_limbs<float> : jboost::n_limbs<double>))
    return jboost::invalid("jboost sums: shapes disagree");
  const jboost::Pool pool = jboost::pool_of(threads);
  return is_single ? sum_as<float>(pool, batch, values, group, *out, *scale, *bits)
                   : sum_as<double>(pool, batch, values, group, *out, *scale, *bits);
}

}  // namespace

extern "C" JBOOST_EXPORT XLA_FFI_Error* jboost_quantise(XLA_FFI_CallFrame* call_frame);

XLA_FFI_DEFINE_HANDLER_SYMBOL(jboost_quantise, quantise,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());

extern "C" JBOOST_EXPORT XLA_FFI_Error* jboost_sum_by_group(XLA_FFI_CallFrame* call_frame);

XLA_FFI_DEFINE_HANDLER_SYMBOL(jboost_sum_by_group, sum_by_group,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());
