// What the library says of itself and lets itself be told; plain C functions, for ctypes.

#include "scratch.h"
#include "xla.h"

// The jaxlib whose headers it was compiled against.
extern "C" JBOOST_EXPORT const char* jboost_built_for() { return JBOOST_JAXLIB; }

// The most threads that each call may use from now on.
extern "C" JBOOST_EXPORT void jboost_limit_threads(int64_t limit) { jboost::thread_limit() = limit; }

// Frees memory that is kept for the next call.
extern "C" JBOOST_EXPORT void jboost_release_scratch() { jboost::Scratch::release(); }
