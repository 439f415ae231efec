// Binning as plain C functions, for ctypes: it happens outside of XLA, on arrays of NumPy.

#include <cstdint>
#include <exception>

#include "../_runtime/xla.h"
#include "codes.h"
#include "joining.h"

namespace {

template <typename T, typename Code>
void bin(jboost::Binning<T, Code> p, int64_t n_threads) {
  jboost::OwnThreads threads;
  const jboost::Pool pool = threads.pool(n_threads);
  const int64_t workers = pool.workers_for(p.n_rows * p.n_features);
  jboost::bin_values(p, [&](const auto& work) {
    jboost::Crew(pool, workers).run(workers, [&](int64_t, int64_t) { work(); });
  });
}

// 0 if all went well, 1 if memory ran out.
template <typename T>
int bin_as(const T* values, int64_t row_step, int64_t feature_step, int64_t n_rows, int64_t n_features, const T* edges,
           int64_t n_edges, void* codes, int wide_codes, int64_t n_threads) {
  try {
    if (wide_codes)
      bin<T, uint16_t>({values, row_step, feature_step, edges, static_cast<uint16_t*>(codes), n_rows, n_features, n_edges},
                       n_threads);
    else
      bin<T, uint8_t>({values, row_step, feature_step, edges, static_cast<uint8_t*>(codes), n_rows, n_features, n_edges},
                      n_threads);
  } catch (const std::exception&) {
    return 1;
  }
  return 0;
}

}  // namespace

extern "C" JBOOST_EXPORT int jboost_bin_float32(const float* values, int64_t row_step, int64_t feature_step,
                                                int64_t n_rows, int64_t n_features, const float* edges, int64_t n_edges,
                                                void* codes, int wide_codes, int64_t n_threads) {
  return bin_as(values, row_step, feature_step, n_rows, n_features, edges, n_edges, codes, wide_codes, n_threads);
}

extern "C" JBOOST_EXPORT int jboost_bin_float64(const double* values, int64_t row_step, int64_t feature_step,
                                                int64_t n_rows, int64_t n_features, const double* edges, int64_t n_edges,
                                                void* codes, int wide_codes, int64_t n_threads) {
  return bin_as(values, row_step, feature_step, n_rows, n_features, edges, n_edges, codes, wide_codes, n_threads);
}

// Joins two columns of codes; see join_codes. Returns the number of joint codes, 0 if they are too many, -1 if memory ran
// out.
extern "C" JBOOST_EXPORT int64_t jboost_join_codes(const uint8_t* first, const uint8_t* second, int64_t n_rows,
                                                   int64_t n_first, int64_t n_second, int64_t most, uint8_t* joint,
                                                   int32_t* pairs) {
  try {
    jboost::OwnThreads threads;
    const jboost::Pool pool = threads.pool(jboost::thread_limit());
    return jboost::join_codes({first, second, n_rows, n_first, n_second, most}, joint, pairs, pool);
  } catch (const std::exception&) {
    return -1;
  }
}
