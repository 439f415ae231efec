// Loops that become vectors, for the processor at hand.

#ifndef JBOOST_SIMD_H_
#define JBOOST_SIMD_H_

// Compiled for several instruction sets; the loader takes the best that the processor has.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__) && !defined(JBOOST_NO_CLONES)
#define JBOOST_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define JBOOST_CLONES
#endif
#if defined(__GNUC__)
#define JBOOST_INLINE inline __attribute__((always_inline))
#define JBOOST_INLINE_LAMBDA __attribute__((always_inline))
#else
#define JBOOST_INLINE inline
#define JBOOST_INLINE_LAMBDA
#endif

#endif  // JBOOST_SIMD_H_
