// The histogram kernel as a custom call of XLA's foreign function interface, for the platform "cpu".
//
// jboost_histogram takes bins uint8|uint16 [..., f, n], slot uint32 [..., n], values int32 [..., n, c]; result int32
// [..., b, c, l, f].

#include "kernel.h"

#include "../_runtime/xla.h"

namespace ffi = xla::ffi;

namespace {

ffi::Error build(ffi::ThreadPool threads, ffi::AnyBuffer bins, ffi::AnyBuffer slot, ffi::AnyBuffer values,
                 ffi::Result<ffi::AnyBuffer> out) {
  const jboost::Dimensions shape = out->dimensions();
  const jboost::Batch batch(shape, 4);
  const int64_t lead = batch.n_leading();
  const bool wide = bins.element_type() == ffi::U16;
  if (lead < 0 || !batch.holds(bins, 2) || !batch.holds(slot, 1) || !batch.holds(values, 2) ||
      (!wide && bins.element_type() != ffi::U8) || slot.element_type() != ffi::U32 ||
      values.element_type() != ffi::S32 || out->element_type() != ffi::S32)
    return jboost::invalid("jboost histogram: unexpected ranks or types");
  const int64_t n_codes = shape[lead], n_statistics = shape[lead + 1], n_slots = shape[lead + 2];
  const int64_t n_features = shape[lead + 3], n_rows = slot.dimensions()[lead];
  if (bins.dimensions()[lead] != n_features || bins.dimensions()[lead + 1] != n_rows ||
      values.dimensions()[lead] != n_rows || values.dimensions()[lead + 1] != n_statistics)
    return jboost::invalid("jboost histogram: shapes disagree");
  if (!jboost::fits(n_slots, n_codes)) return jboost::invalid("jboost histogram: too many slots");
  if (out->element_count() == 0) return ffi::Error::Success();

  return jboost::for_each_element(jboost::pool_of(threads), batch.size(), [&](int64_t i, const jboost::Pool& pool) {
    jboost::Problem p{};
    p.bins = wide ? static_cast<const void*>(batch.element<uint16_t>(bins, i)) : batch.element<uint8_t>(bins, i);
    p.wide_bins = wide;
    p.slot = batch.element<uint32_t>(slot, i);
    p.values = batch.element<int32_t>(values, i);
    p.out = static_cast<int32_t*>(out->untyped_data()) + i * n_codes * n_statistics * n_slots * n_features;
    p.n_rows = n_rows;
    p.n_features = n_features;
    p.n_statistics = n_statistics;
    p.n_slots = n_slots;
    p.n_codes = n_codes;
    jboost::build_histogram(p, pool);
  });
}

}  // namespace

extern "C" JBOOST_EXPORT XLA_FFI_Error* jboost_histogram(XLA_FFI_CallFrame* call_frame);

XLA_FFI_DEFINE_HANDLER_SYMBOL(jboost_histogram, build,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());
