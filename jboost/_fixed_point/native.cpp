// Scales and exact sums as custom calls of XLA's foreign function interface, for the platform "cpu".
//
// jboost_find_scale: values [..., n, c]; results: factor [..., c], and int32 [..., c] how many values are not 0.
// jboost_sum_by_group: values [..., n, c], group int32 [..., n], or [..., 0] for one group of all, factor [..., c] and
// int32 [..., c] how many values are not 0; result [..., groups, c].
// jboost_sum_moments: g and h [..., n, 1], counted bool [..., n], group int32 [..., n], factor [..., 2] and int32 [..., 2] how
// many values are not 0; results: sums [..., groups, 1] of g and of h, and int32 [..., groups] of the counted.
// jboost_count_by_group: counted bool [..., n], group int32 [..., n]; result int32 [..., groups].
// jboost_select: key uint32 or uint64 [..., n], mass bool, int32 or int64 [..., n], group int32 [..., n], or [..., 0] for one
// group of all, rank int32 or int64 [..., groups]; result [..., groups], as the keys.

#include "kernel.h"
#include "moments.h"
#include "select.h"

#include "../_runtime/xla.h"

namespace ffi = xla::ffi;

namespace {

bool are_floats(const ffi::AnyBuffer& values, const ffi::AnyBuffer& factor) {
  return values.element_type() == factor.element_type() &&
         (values.element_type() == ffi::F32 || values.element_type() == ffi::F64);
}

template <typename T>
ffi::Error find_scale_of(const jboost::Pool& pool, const jboost::Batch& batch, const ffi::AnyBuffer& values,
                         ffi::AnyBuffer factor, ffi::AnyBuffer count) {
  const int64_t lead = batch.n_leading(), n = values.dimensions()[lead], c = values.dimensions()[lead + 1];
  return jboost::for_each_element(pool, batch.size(), [&](int64_t i, const jboost::Pool& threads) {
    jboost::FixedPoint<T> columns({batch.element<T>(values, i), n, c}, threads);
    columns.find_scale(static_cast<T*>(factor.untyped_data()) + i * c,
                       static_cast<int32_t*>(count.untyped_data()) + i * c);
  });
}

ffi::Error find_scale(ffi::ThreadPool threads, ffi::AnyBuffer values, ffi::Result<ffi::AnyBuffer> factor,
                      ffi::Result<ffi::AnyBuffer> count) {
  const jboost::Batch batch(factor->dimensions(), 1);
  const int64_t lead = batch.n_leading();
  if (lead < 0 || !batch.holds(values, 2) || !batch.holds(*count, 1) || !are_floats(values, *factor) ||
      count->element_type() != ffi::S32 || values.dimensions()[lead + 1] != factor->dimensions()[lead] ||
      count->dimensions()[lead] != factor->dimensions()[lead])
    return jboost::invalid("jboost scale: unexpected ranks, types or shapes");
  const jboost::Pool pool = jboost::pool_of(threads);
  return values.element_type() == ffi::F32 ? find_scale_of<float>(pool, batch, values, *factor, *count)
                                           : find_scale_of<double>(pool, batch, values, *factor, *count);
}

struct Sums {
  ffi::AnyBuffer values, group, factor, count, out;
};

template <typename T>
ffi::Error sum_as(const jboost::Pool& pool, const jboost::Batch& batch, const Sums& s) {
  const int64_t lead = batch.n_leading(), n = s.values.dimensions()[lead];
  const bool has_groups = s.group.dimensions()[lead] > 0;
  const int64_t n_groups = s.out.dimensions()[lead], c = s.out.dimensions()[lead + 1];
  return jboost::for_each_element(pool, batch.size(), [&](int64_t i, const jboost::Pool& threads) {
    jboost::FixedPoint<T>({batch.element<T>(s.values, i), n, c}, threads)
        .sum(has_groups ? batch.element<int32_t>(s.group, i) : nullptr, n_groups, batch.element<T>(s.factor, i),
             batch.element<int32_t>(s.count, i), static_cast<T*>(s.out.untyped_data()) + i * n_groups * c);
  });
}

ffi::Error sum_by_group(ffi::ThreadPool threads, ffi::AnyBuffer values, ffi::AnyBuffer group, ffi::AnyBuffer factor,
                        ffi::AnyBuffer count, ffi::Result<ffi::AnyBuffer> out) {
  const jboost::Batch batch(out->dimensions(), 2);
  const int64_t lead = batch.n_leading();
  if (lead < 0 || !batch.holds(values, 2) || !batch.holds(group, 1) || !batch.holds(factor, 1) ||
      !batch.holds(count, 1) || !are_floats(values, factor) || !are_floats(values, *out) ||
      group.element_type() != ffi::S32 || count.element_type() != ffi::S32)
    return jboost::invalid("jboost sums: unexpected ranks or types");
  const int64_t n_grouped = group.dimensions()[lead], c = values.dimensions()[lead + 1];
  if ((n_grouped != values.dimensions()[lead] && (n_grouped > 0 || out->dimensions()[lead] != 1)) ||
      out->dimensions()[lead + 1] != c || factor.dimensions()[lead] != c || count.dimensions()[lead] != c)
    return jboost::invalid("jboost sums: shapes disagree");
  const jboost::Pool pool = jboost::pool_of(threads);
  const Sums sums{values, group, factor, count, *out};
  return values.element_type() == ffi::F32 ? sum_as<float>(pool, batch, sums) : sum_as<double>(pool, batch, sums);
}

struct MomentBuffers {
  ffi::AnyBuffer g, h, counted, group, factor, count, sum_of_g, sum_of_h, n_counted;
};

template <typename T>
ffi::Error moments_as(const jboost::Pool& pool, const jboost::Batch& batch, const MomentBuffers& b) {
  const int64_t lead = batch.n_leading(), n = b.g.dimensions()[lead], n_groups = b.sum_of_g.dimensions()[lead];
  return jboost::for_each_element(pool, batch.size(), [&](int64_t i, const jboost::Pool& threads) {
    const jboost::Moments<T> moments{batch.element<T>(b.g, i),       batch.element<T>(b.h, i),
                                     batch.element<bool>(b.counted, i), batch.element<int32_t>(b.group, i),
                                     n,                              n_groups,
                                     batch.element<T>(b.factor, i),  batch.element<int32_t>(b.count, i)};
    jboost::sum_moments(threads, moments, static_cast<T*>(b.sum_of_g.untyped_data()) + i * n_groups,
                        static_cast<T*>(b.sum_of_h.untyped_data()) + i * n_groups,
                        static_cast<int32_t*>(b.n_counted.untyped_data()) + i * n_groups);
  });
}

ffi::Error sum_moments(ffi::ThreadPool threads, ffi::AnyBuffer g, ffi::AnyBuffer h, ffi::AnyBuffer counted,
                       ffi::AnyBuffer group, ffi::AnyBuffer factor, ffi::AnyBuffer count,
                       ffi::Result<ffi::AnyBuffer> sum_of_g, ffi::Result<ffi::AnyBuffer> sum_of_h,
                       ffi::Result<ffi::AnyBuffer> n_counted) {
  const jboost::Batch batch(sum_of_g->dimensions(), 2);
  const int64_t lead = batch.n_leading();
  for (const ffi::AnyBuffer& one : {counted, group, factor, count, *n_counted})
    if (lead < 0 || !batch.holds(one, 1)) return jboost::invalid("jboost moments: unexpected ranks");
  for (const ffi::AnyBuffer& one : {g, h, *sum_of_g, *sum_of_h})
    if (!batch.holds(one, 2) || one.dimensions()[lead + 1] != 1)
      return jboost::invalid("jboost moments: unexpected ranks");
  if (!are_floats(g, h) || !are_floats(g, factor) || !are_floats(g, *sum_of_g) || !are_floats(g, *sum_of_h) ||
      counted.element_type() != ffi::PRED || group.element_type() != ffi::S32 || count.element_type() != ffi::S32 ||
      n_counted->element_type() != ffi::S32)
    return jboost::invalid("jboost moments: unexpected types");
  const int64_t n = g.dimensions()[lead], n_groups = sum_of_g->dimensions()[lead];
  for (const ffi::AnyBuffer& one : {h, counted, group})
    if (one.dimensions()[lead] != n) return jboost::invalid("jboost moments: shapes disagree");
  if (sum_of_h->dimensions()[lead] != n_groups || n_counted->dimensions()[lead] != n_groups ||
      factor.dimensions()[lead] != 2 || count.dimensions()[lead] != 2)
    return jboost::invalid("jboost moments: shapes disagree");
  const jboost::Pool pool = jboost::pool_of(threads);
  const MomentBuffers buffers{g, h, counted, group, factor, count, *sum_of_g, *sum_of_h, *n_counted};
  return g.element_type() == ffi::F32 ? moments_as<float>(pool, batch, buffers) : moments_as<double>(pool, batch, buffers);
}

ffi::Error count_by_group(ffi::ThreadPool threads, ffi::AnyBuffer counted, ffi::AnyBuffer group,
                          ffi::Result<ffi::AnyBuffer> out) {
  const jboost::Batch batch(out->dimensions(), 1);
  const int64_t lead = batch.n_leading();
  if (lead < 0 || !batch.holds(counted, 1) || !batch.holds(group, 1) || counted.element_type() != ffi::PRED ||
      group.element_type() != ffi::S32 || out->element_type() != ffi::S32 ||
      counted.dimensions()[lead] != group.dimensions()[lead])
    return jboost::invalid("jboost counts: unexpected ranks, types or shapes");
  const int64_t n_rows = counted.dimensions()[lead], n_groups = out->dimensions()[lead];
  return jboost::for_each_element(jboost::pool_of(threads), batch.size(), [&](int64_t i, const jboost::Pool& pool) {
    jboost::count_by_group(pool, batch.element<bool>(counted, i), batch.element<int32_t>(group, i), n_rows, n_groups,
                           static_cast<int32_t*>(out->untyped_data()) + i * n_groups);
  });
}

struct Selected {
  ffi::AnyBuffer key, mass, group, rank, out;
};

template <typename Key, typename Mass, typename Rank>
ffi::Error select_as(const jboost::Pool& pool, const jboost::Batch& batch, const Selected& s) {
  const int64_t lead = batch.n_leading(), n_rows = s.key.dimensions()[lead], n_groups = s.out.dimensions()[lead];
  const bool has_groups = s.group.dimensions()[lead] > 0 || n_rows == 0;
  return jboost::for_each_element(pool, batch.size(), [&](int64_t i, const jboost::Pool& threads) {
    const Rank* rank = batch.element<Rank>(s.rank, i);
    const jboost::Selection<Key, Mass> selection{batch.element<Key>(s.key, i), batch.element<Mass>(s.mass, i),
                                                 has_groups ? batch.element<int32_t>(s.group, i) : nullptr, n_rows,
                                                 n_groups};
    jboost::select(selection, threads, std::vector<int64_t>(rank, rank + n_groups),
                    static_cast<Key*>(s.out.untyped_data()) + i * n_groups);
  });
}

template <typename Key>
ffi::Error select_by_mass(const jboost::Pool& pool, const jboost::Batch& batch, const Selected& s) {
  const ffi::DataType mass = s.mass.element_type(), rank = s.rank.element_type();
  if (mass == ffi::PRED && rank == ffi::S32) return select_as<Key, bool, int32_t>(pool, batch, s);
  if (mass == ffi::S32 && rank == ffi::S32) return select_as<Key, int32_t, int32_t>(pool, batch, s);
  if (mass == ffi::S64 && rank == ffi::S64) return select_as<Key, int64_t, int64_t>(pool, batch, s);
  return jboost::invalid("jboost select: unexpected types");
}

ffi::Error select_keys(ffi::ThreadPool threads, ffi::AnyBuffer key, ffi::AnyBuffer mass, ffi::AnyBuffer group,
                  ffi::AnyBuffer rank, ffi::Result<ffi::AnyBuffer> out) {
  const jboost::Batch batch(out->dimensions(), 1);
  const int64_t lead = batch.n_leading();
  if (lead < 0 || !batch.holds(key, 1) || !batch.holds(mass, 1) || !batch.holds(group, 1) || !batch.holds(rank, 1) ||
      key.element_type() != out->element_type() || group.element_type() != ffi::S32)
    return jboost::invalid("jboost select: unexpected ranks or types");
  const int64_t n = key.dimensions()[lead], n_grouped = group.dimensions()[lead];
  if (mass.dimensions()[lead] != n || rank.dimensions()[lead] != out->dimensions()[lead] ||
      (n_grouped != n && (n_grouped > 0 || out->dimensions()[lead] != 1)))
    return jboost::invalid("jboost select: shapes disagree");
  const jboost::Pool pool = jboost::pool_of(threads);
  const Selected selected{key, mass, group, rank, *out};
  if (key.element_type() == ffi::U32) return select_by_mass<uint32_t>(pool, batch, selected);
  if (key.element_type() == ffi::U64) return select_by_mass<uint64_t>(pool, batch, selected);
  return jboost::invalid("jboost select: unexpected types");
}

}  // namespace

extern "C" JBOOST_EXPORT XLA_FFI_Error* jboost_find_scale(XLA_FFI_CallFrame* call_frame);

XLA_FFI_DEFINE_HANDLER_SYMBOL(jboost_find_scale, find_scale,
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
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());

extern "C" JBOOST_EXPORT XLA_FFI_Error* jboost_sum_moments(XLA_FFI_CallFrame* call_frame);

XLA_FFI_DEFINE_HANDLER_SYMBOL(jboost_sum_moments, sum_moments,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());

extern "C" JBOOST_EXPORT XLA_FFI_Error* jboost_count_by_group(XLA_FFI_CallFrame* call_frame);

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    jboost_count_by_group, count_by_group,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());

extern "C" JBOOST_EXPORT XLA_FFI_Error* jboost_select(XLA_FFI_CallFrame* call_frame);

XLA_FFI_DEFINE_HANDLER_SYMBOL(jboost_select, select_keys,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());
