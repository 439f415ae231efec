// Steps of the scores as a custom call of XLA's foreign function interface, for the platform "cpu".
//
// jboost_move_scores: score [..., n, k], leaf int32 [..., n, 1 or k], leaf_value [..., leaves, k], g and h [..., n, k],
// value and weight [..., n], units [..., 2, k] of g and h, numbers [..., 3] as in Moves; results: scores [..., n, k] and what
// the loss of a row may be there [..., n].

#include "moves.h"

#include "../_runtime/xla.h"

namespace ffi = xla::ffi;

namespace {

struct MoveBuffers {
  ffi::AnyBuffer score, leaf, leaf_value, g, h, value, weight, units, numbers, moved, most;
};

template <typename T>
ffi::Error move_as(const jboost::Pool& pool, const jboost::Batch& batch, const MoveBuffers& b) {
  const int64_t lead = batch.n_leading(), n = b.moved.dimensions()[lead], k = b.moved.dimensions()[lead + 1];
  const int64_t c = b.leaf.dimensions()[lead + 1], n_leaves = b.leaf_value.dimensions()[lead];
  return jboost::for_each_element(pool, batch.size(), [&](int64_t i, const jboost::Pool& threads) {
    const T *units = batch.element<T>(b.units, i), *numbers = batch.element<T>(b.numbers, i);
    const jboost::Moves<T> moves{batch.element<T>(b.score, i),
                                 batch.element<int32_t>(b.leaf, i),
                                 batch.element<T>(b.leaf_value, i),
                                 batch.element<T>(b.g, i),
                                 batch.element<T>(b.h, i),
                                 batch.element<T>(b.value, i),
                                 batch.element<T>(b.weight, i),
                                 units,
                                 units + k,
                                 numbers[0],
                                 numbers[1],
                                 numbers[2],
                                 n,
                                 k,
                                 c,
                                 n_leaves};
    jboost::move_scores(threads, moves, static_cast<T*>(b.moved.untyped_data()) + i * n * k,
                        static_cast<T*>(b.most.untyped_data()) + i * n);
  });
}

ffi::Error move_scores(ffi::ThreadPool threads, ffi::AnyBuffer score, ffi::AnyBuffer leaf, ffi::AnyBuffer leaf_value,
                       ffi::AnyBuffer g, ffi::AnyBuffer h, ffi::AnyBuffer value, ffi::AnyBuffer weight, ffi::AnyBuffer units,
                       ffi::AnyBuffer numbers, ffi::Result<ffi::AnyBuffer> moved, ffi::Result<ffi::AnyBuffer> most) {
  const jboost::Batch batch(moved->dimensions(), 2);
  const int64_t lead = batch.n_leading();
  const ffi::DataType type = score.element_type();
  if (lead < 0 || (type != ffi::F32 && type != ffi::F64) || leaf.element_type() != ffi::S32)
    return jboost::invalid("jboost moves: unexpected ranks or types");
  for (const ffi::AnyBuffer& one : {leaf_value, g, h, value, weight, units, numbers, *moved, *most})
    if (one.element_type() != type) return jboost::invalid("jboost moves: unexpected types");
  for (const ffi::AnyBuffer& one : {score, leaf, leaf_value, g, h, units})
    if (!batch.holds(one, 2)) return jboost::invalid("jboost moves: unexpected ranks");
  for (const ffi::AnyBuffer& one : {value, weight, numbers, *most})
    if (!batch.holds(one, 1)) return jboost::invalid("jboost moves: unexpected ranks");
  const int64_t n = moved->dimensions()[lead], k = moved->dimensions()[lead + 1], c = leaf.dimensions()[lead + 1];
  for (const ffi::AnyBuffer& one : {score, leaf, g, h, value, weight, *most})
    if (one.dimensions()[lead] != n) return jboost::invalid("jboost moves: shapes disagree");
  for (const ffi::AnyBuffer& one : {score, leaf_value, g, h, units})
    if (one.dimensions()[lead + 1] != k) return jboost::invalid("jboost moves: shapes disagree");
  if ((c != 1 && c != k) || leaf_value.dimensions()[lead] < 1 || units.dimensions()[lead] != 2 ||
      numbers.dimensions()[lead] != 3)
    return jboost::invalid("jboost moves: shapes disagree");
  const jboost::Pool pool = jboost::pool_of(threads);
  const MoveBuffers buffers{score, leaf, leaf_value, g, h, value, weight, units, numbers, *moved, *most};
  return type == ffi::F32 ? move_as<float>(pool, batch, buffers) : move_as<double>(pool, batch, buffers);
}

}  // namespace

extern "C" JBOOST_EXPORT XLA_FFI_Error* jboost_move_scores(XLA_FFI_CallFrame* call_frame);

XLA_FFI_DEFINE_HANDLER_SYMBOL(jboost_move_scores, move_scores,
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
                                  .Ret<ffi::AnyBuffer>());
