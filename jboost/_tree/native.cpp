// The growth of a tree as a custom call of XLA's foreign function interface, for the platform "cpu".
//
// Arguments: bins in groups uint8|uint16 [..., groups, n, width], g and h [..., n, k], active bool [..., n], allowed
// bool [..., d, f], scale [..., c] and hyper [..., 5], categorical columns int32 [..., m]. All floats are of one type; c
// is 2 k, or one more where rows are counted. Where features lie in bundles: column int32 [..., f], code uint8 [..., f, 256],
// n_joint int32 [..., groups * width], order uint8 [..., f, 256] and n_unusual int32 [..., f], all without an entry
// otherwise. Results: feature, threshold int32, missing_right bool [..., s],
// categories_right uint32 [..., s, words], gain [..., s], leaf int32 [..., n].

#include "grow.h"

#include <cstring>

#include "../_runtime/xla.h"

namespace ffi = xla::ffi;

namespace {

struct Options {
  int64_t n_codes, n_category_codes, max_cat_to_onehot, min_child_samples;
  bool symmetric, has_missing;
};

struct Arguments {
  ffi::AnyBuffer grouped, g, h, active, allowed, scale, hyper, categorical, column, code, n_joint, order, n_unusual;
};

struct Results {
  ffi::AnyBuffer feature, threshold, missing_right, categories_right, gain, leaf;
};

const char* mistake(const Arguments& a, const Results& r, const jboost::Batch& batch, const Options& o) {
  const auto type = a.scale.element_type();
  const int64_t lead = batch.n_leading();
  if (lead < 0 || !batch.holds(a.grouped, 3) || !batch.holds(a.g, 2) || !batch.holds(a.h, 2) ||
      !batch.holds(a.active, 1) || !batch.holds(a.allowed, 2) || !batch.holds(a.scale, 1) || !batch.holds(a.hyper, 1) ||
      !batch.holds(a.categorical, 1) || !batch.holds(a.column, 1) || !batch.holds(a.code, 2) ||
      !batch.holds(a.n_joint, 1) || !batch.holds(a.order, 2) || !batch.holds(a.n_unusual, 1) || !batch.holds(r.feature, 1) || !batch.holds(r.threshold, 1) ||
      !batch.holds(r.missing_right, 1) || !batch.holds(r.categories_right, 2) || !batch.holds(r.gain, 1))
    return "jboost tree: unexpected ranks";
  if ((a.grouped.element_type() != ffi::U8 && a.grouped.element_type() != ffi::U16) ||
      a.g.element_type() != type || a.h.element_type() != type ||
      a.active.element_type() != ffi::PRED || a.allowed.element_type() != ffi::PRED ||
      (type != ffi::F32 && type != ffi::F64) || a.hyper.element_type() != type || r.gain.element_type() != type ||
      a.categorical.element_type() != ffi::S32 || a.column.element_type() != ffi::S32 ||
      a.code.element_type() != ffi::U8 || a.n_joint.element_type() != ffi::S32 ||
      a.order.element_type() != ffi::U8 || a.n_unusual.element_type() != ffi::S32 || r.feature.element_type() != ffi::S32 ||
      r.threshold.element_type() != ffi::S32 || r.missing_right.element_type() != ffi::PRED ||
      r.categories_right.element_type() != ffi::U32 || r.leaf.element_type() != ffi::S32)
    return "jboost tree: unexpected types";
  const auto size = [lead](const ffi::AnyBuffer& buffer, int64_t axis) { return buffer.dimensions()[lead + axis]; };
  const int64_t depth = size(a.allowed, 0), f = size(a.allowed, 1), n = size(a.grouped, 1), k = size(a.g, 1);
  const int64_t slots = o.symmetric ? depth : (int64_t{1} << std::min<int64_t>(depth, 40)) - 1;
  if (size(a.g, 0) != n || size(a.h, 0) != n || size(a.h, 1) != k || size(a.active, 0) != n || size(r.leaf, 0) != n ||
      size(a.scale, 0) != 2 * k + (o.min_child_samples > 0) || size(a.hyper, 0) != 5 || size(r.feature, 0) != slots ||
      size(r.threshold, 0) != slots || size(r.missing_right, 0) != slots || size(r.categories_right, 0) != slots ||
      size(r.gain, 0) != slots)
    return "jboost tree: shapes disagree";
  const int64_t width = size(a.grouped, 2), places = size(a.grouped, 0) * width, in_bundles = size(a.column, 0);
  if (width < 1 || width > jboost::kGroup || (!in_bundles && size(a.grouped, 0) != (f + width - 1) / width))
    return "jboost tree: unexpected groups";
  if (in_bundles && (in_bundles != f || size(a.code, 0) != f || size(a.code, 1) != jboost::kJointCodesOfBundle ||
                     size(a.order, 0) != f || size(a.order, 1) != jboost::kJointCodesOfBundle ||
                     size(a.n_unusual, 0) != f || size(a.n_joint, 0) != places || a.grouped.element_type() != ffi::U8))
    return "jboost tree: unexpected bundles";
  if (n < 1 || n >= (int64_t{1} << 31) || f < 1 || depth < 1 || depth > 24 || o.n_codes < 1 ||
      k < 1 || o.n_category_codes > o.n_codes ||
      size(r.categories_right, 1) * 32 < (size(a.categorical, 0) ? o.n_codes : 0))
    return "jboost tree: sizes out of range";
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
    const bool wide = a.grouped.element_type() == ffi::U16;
    const T* hyper = batch.element<T>(a.hyper, i);
    jboost::Growth<T> p{};
    const auto codes_of = [&](const ffi::AnyBuffer& buffer) -> const void* {
      if (wide) return batch.element<uint16_t>(buffer, i);
      return batch.element<uint8_t>(buffer, i);
    };
    p.grouped = {codes_of(a.grouped), wide, size(a.grouped, 1), size(a.allowed, 1), size(a.grouped, 2)};
    if (size(a.column, 0)) {
      p.bundles.column = batch.element<int32_t>(a.column, i);
      p.bundles.code = batch.element<uint8_t>(a.code, i);
      p.bundles.n_joint = batch.element<int32_t>(a.n_joint, i);
      p.bundles.order = batch.element<uint8_t>(a.order, i);
      p.bundles.n_unusual = batch.element<int32_t>(a.n_unusual, i);
      p.bundles.n_features = size(a.allowed, 1);
      p.bundles.n_columns = size(a.n_joint, 0);
      p.grouped.n_features = p.bundles.fit_columns();
    }
    p.g = batch.element<T>(a.g, i);
    p.h = batch.element<T>(a.h, i);
    p.active = batch.element<bool>(a.active, i);
    p.allowed = batch.element<bool>(a.allowed, i);
    p.rules = {hyper[0], hyper[1], hyper[2], hyper[3], batch.element<T>(a.scale, i), size(a.g, 1),
               static_cast<int32_t>(o.min_child_samples), o.has_missing};
    p.cat_smooth = hyper[4];
    p.categorical = batch.element<int32_t>(a.categorical, i);
    p.n_categorical = size(a.categorical, 0);
    p.n_category_codes = o.n_category_codes;
    p.max_cat_to_onehot = o.max_cat_to_onehot;
    p.n_codes = o.n_codes;
    p.depth = size(a.allowed, 0);
    p.symmetric = o.symmetric;
    p.feature = result(r.feature, static_cast<int32_t*>(nullptr));
    p.threshold = result(r.threshold, static_cast<int32_t*>(nullptr));
    p.missing_right = result(r.missing_right, static_cast<bool*>(nullptr));
    p.categories_right = result(r.categories_right, static_cast<uint32_t*>(nullptr));
    p.n_set_words = size(r.categories_right, 1);
    p.gain = result(r.gain, static_cast<T*>(nullptr));
    p.leaf = result(r.leaf, static_cast<int32_t*>(nullptr));
    jboost::grow_tree(p, threads);
  });
}

// Byte j of word i becomes byte i of word j, by swapping quarters of ever smaller squares.
inline void transpose(uint64_t (&words)[8]) {
  constexpr uint64_t masks[] = {0x00ff00ff00ff00ff, 0x0000ffff0000ffff, 0x00000000ffffffff};
  for (int level = 2; level >= 0; --level) {
    const int side = 1 << level, bits = 8 * side;
    for (int i = 0; i < 8; ++i) {
      if (i & side) continue;
      const uint64_t differing = ((words[i] >> bits) ^ words[i + side]) & masks[level];
      words[i + side] ^= differing;
      words[i] ^= differing << bits;
    }
  }
}

// Lays the codes of up to `width` columns side by side for the rows from `row` on, eight at a time; returns the first
// row that is left. A row is written as a word, of which the next row overwrites what is beyond its width. For
// little-endian machines, the only ones that XLA supports.
inline int64_t group_by_words(const uint8_t* const* columns, int64_t n_columns, int64_t width, int64_t row, int64_t last,
                              uint8_t* out) {
  for (; (row + 7) * width + 8 <= last * width; row += 8) {
    uint64_t words[8] = {};
    for (int64_t j = 0; j < n_columns; ++j) std::memcpy(&words[j], columns[j] + row, 8);
    transpose(words);
    for (int64_t i = 0; i < 8; ++i) std::memcpy(out + (row + i) * width, &words[i], 8);
  }
  return row;
}
inline int64_t group_by_words(const uint16_t* const*, int64_t, int64_t, int64_t row, int64_t, uint16_t*) { return row; }

// Lays the codes of up to kGroup columns side by side for each row. Rows beyond n are zeros, columns beyond f too.
//
// Argument: bins uint8|uint16 [..., f, n]; result the same type [..., groups, n, width].
template <typename Code>
void group_columns(const jboost::Pool& pool, const Code* bins, int64_t f, int64_t n, int64_t n_padded, int64_t width,
                   Code* out) {
  constexpr int64_t rows = 4096;  // what they take of the output stays in the first-level cache
  const int64_t groups = (f + width - 1) / width, blocks = (n_padded + rows - 1) / rows;
  jboost::Crew(pool, pool.workers_for(f * n)).run(groups * blocks, [&](int64_t unit, int64_t) {
    const int64_t group = unit / blocks, start = unit % blocks * rows, last = std::min(start + rows, n_padded);
    const int64_t present = std::min(width, f - group * width), filled = std::max(start, std::min(last, n));
    const Code* columns[jboost::kGroup] = {};
    for (int64_t j = 0; j < present; ++j) columns[j] = bins + (group * width + j) * n;
    Code* const to = out + group * n_padded * width;
    const int64_t first = group_by_words(columns, present, width, start, filled, to);
    for (int64_t j = 0; j < width; ++j) {
      const int64_t end = j < present ? filled : first;
      for (int64_t i = first; i < end; ++i) to[i * width + j] = columns[j][i];
      for (int64_t i = end; i < last; ++i) to[i * width + j] = 0;
    }
  });
}

ffi::Error run_grouping(ffi::ThreadPool threads, ffi::AnyBuffer bins, ffi::Result<ffi::AnyBuffer> out) {
  const jboost::Batch batch(out->dimensions(), 3);
  const int64_t lead = batch.n_leading();
  const bool wide = bins.element_type() == ffi::U16;
  if (lead < 0 || !batch.holds(bins, 2) || (!wide && bins.element_type() != ffi::U8) ||
      out->element_type() != bins.element_type())
    return jboost::invalid("jboost columns: unexpected ranks or types");
  const int64_t f = bins.dimensions()[lead], n = bins.dimensions()[lead + 1];
  const int64_t groups = out->dimensions()[lead], width = out->dimensions()[lead + 2];
  if (width < 1 || groups != (f + width - 1) / width || out->dimensions()[lead + 1] != n)
    return jboost::invalid("jboost columns: shapes disagree");
  const int64_t size = groups * n * width;
  return jboost::for_each_element(jboost::pool_of(threads), batch.size(), [&](int64_t i, const jboost::Pool& pool) {
    if (wide)
      group_columns(pool, batch.element<uint16_t>(bins, i), f, n, n, width,
                    static_cast<uint16_t*>(out->untyped_data()) + i * size);
    else
      group_columns(pool, batch.element<uint8_t>(bins, i), f, n, n, width,
                    static_cast<uint8_t*>(out->untyped_data()) + i * size);
  });
}

ffi::Error run(ffi::ThreadPool threads, ffi::AnyBuffer grouped, ffi::AnyBuffer g, ffi::AnyBuffer h,
               ffi::AnyBuffer active, ffi::AnyBuffer allowed, ffi::AnyBuffer scale, ffi::AnyBuffer hyper,
               ffi::AnyBuffer categorical, ffi::AnyBuffer column, ffi::AnyBuffer code, ffi::AnyBuffer n_joint,
               ffi::AnyBuffer order, ffi::AnyBuffer n_unusual, ffi::Result<ffi::AnyBuffer> feature, ffi::Result<ffi::AnyBuffer> threshold,
               ffi::Result<ffi::AnyBuffer> missing_right, ffi::Result<ffi::AnyBuffer> categories_right,
               ffi::Result<ffi::AnyBuffer> gain, ffi::Result<ffi::AnyBuffer> leaf, int32_t n_codes,
               int32_t n_category_codes, int32_t max_cat_to_onehot, int32_t min_child_samples, bool symmetric,
               bool has_missing) {
  const Arguments arguments{grouped, g, h, active, allowed, scale, hyper, categorical, column, code, n_joint, order, n_unusual};
  const Results results{*feature, *threshold, *missing_right, *categories_right, *gain, *leaf};
  const Options options{n_codes, n_category_codes, max_cat_to_onehot, min_child_samples, symmetric, has_missing};
  const jboost::Batch batch(leaf->dimensions(), 1);
  if (const char* what = mistake(arguments, results, batch, options)) return jboost::invalid(what);
  const jboost::Pool pool = jboost::pool_of(threads);
  return scale.element_type() == ffi::F32 ? grow<float>(pool, arguments, results, batch, options)
                                          : grow<double>(pool, arguments, results, batch, options);
}

}  // namespace

extern "C" JBOOST_EXPORT XLA_FFI_Error* jboost_grow_tree(XLA_FFI_CallFrame* call_frame);

XLA_FFI_DEFINE_HANDLER_SYMBOL(jboost_grow_tree, run,
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
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<int32_t>("n_codes")
                                  .Attr<int32_t>("n_category_codes")
                                  .Attr<int32_t>("max_cat_to_onehot")
                                  .Attr<int32_t>("min_child_samples")
                                  .Attr<bool>("symmetric")
                                  .Attr<bool>("has_missing"));

extern "C" JBOOST_EXPORT XLA_FFI_Error* jboost_group_columns(XLA_FFI_CallFrame* call_frame);

XLA_FFI_DEFINE_HANDLER_SYMBOL(jboost_group_columns, run_grouping,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());

// The same as a plain C function, for ctypes, with rows of zeros added up to n_padded. Returns 1 if memory ran out.
extern "C" JBOOST_EXPORT int jboost_group_on_host(const void* bins, int wide, int64_t f, int64_t n, int64_t n_padded,
                                                  int64_t width, void* out) {
  try {
    jboost::OwnThreads threads;
    const jboost::Pool pool = threads.pool(jboost::thread_limit());
    if (wide)
      group_columns(pool, static_cast<const uint16_t*>(bins), f, n, n_padded, width, static_cast<uint16_t*>(out));
    else
      group_columns(pool, static_cast<const uint8_t*>(bins), f, n, n_padded, width, static_cast<uint8_t*>(out));
  } catch (const std::exception&) {
    return 1;
  }
  return 0;
}
