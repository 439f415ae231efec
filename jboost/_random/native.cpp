// Random bits as a custom call of XLA's foreign function interface, for the platform "cpu".
//
// jboost_random_bits: key uint32 [..., 2]; result uint32 [..., n].

#include "threefry.h"

#include "../_runtime/xla.h"

namespace ffi = xla::ffi;

static ffi::Error random_bits(ffi::ThreadPool threads, ffi::AnyBuffer key, ffi::Result<ffi::AnyBuffer> out) {
  const jboost::Batch batch(out->dimensions(), 1);
  const int64_t lead = batch.n_leading();
  if (lead < 0 || !batch.holds(key, 1) || key.dimensions()[lead] != 2 || key.element_type() != ffi::U32 ||
      out->element_type() != ffi::U32)
    return jboost::invalid("jboost random bits: unexpected ranks, types or shapes");
  const int64_t n = out->dimensions()[lead];
  return jboost::for_each_element(jboost::pool_of(threads), batch.size(), [&](int64_t i, const jboost::Pool& pool) {
    jboost::random_bits(pool, batch.element<uint32_t>(key, i), n, static_cast<uint32_t*>(out->untyped_data()) + i * n);
  });
}

extern "C" JBOOST_EXPORT XLA_FFI_Error* jboost_random_bits(XLA_FFI_CallFrame* call_frame);

XLA_FFI_DEFINE_HANDLER_SYMBOL(jboost_random_bits, random_bits,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
