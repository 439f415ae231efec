// Memory that calls borrow, one after the other.

#ifndef JBOOST_SCRATCH_H_
#define JBOOST_SCRATCH_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace jboost {

// Borrows memory for a call: fresh pages take longer than a small tree, and a quarter of the time of a large one. What
// comes back stays on a shelf until it is released.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() {
    if (!buffer_.memory) return;
    buffer_.last = std::this_thread::get_id();
    const std::lock_guard<std::mutex> lock(shelf().mutex);
    shelf().buffers.push_back(std::move(buffer_));
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // To be called once, with how many words from the first on will be used throughout. Throws std::bad_alloc.
  uint64_t* get(int64_t words, int64_t used_throughout = 0) {
    buffer_ = take();
    if (buffer_.words < words) {
      buffer_ = Buffer{};  // first, or both would be there at once
      buffer_.memory.reset(new uint64_t[words]);
      buffer_.words = words;
      ask_for_large_pages(buffer_.memory.get(), used_throughout * static_cast<int64_t>(sizeof(uint64_t)));
    }
    return buffer_.memory.get();
  }

  // Frees what no call has at the moment, apart from small pieces.
  static void release() {
    const std::lock_guard<std::mutex> lock(shelf().mutex);
    auto& buffers = shelf().buffers;
    const auto is_large = [](const Buffer& one) { return one.words * int64_t{sizeof(uint64_t)} > kKeptBytes; };
    buffers.erase(std::remove_if(buffers.begin(), buffers.end(), is_large), buffers.end());
  }

 private:
  static constexpr int64_t kKeptBytes = 4 << 20;
  struct Buffer {
    std::unique_ptr<uint64_t[]> memory;
    int64_t words = 0;
    std::thread::id last;  // who had it: some of it may still be in the cache of its core
  };
  struct Shelf {
    std::mutex mutex;
    std::vector<Buffer> buffers;
  };
  // One takes the place of 512, and is made in the time of a few. A hint, which may do nothing.
  static void ask_for_large_pages(void* memory, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    constexpr uintptr_t page = 4096;
    const uintptr_t first = (reinterpret_cast<uintptr_t>(memory) + page - 1) / page * page;
    const uintptr_t last = (reinterpret_cast<uintptr_t>(memory) + bytes) / page * page;
    if (bytes > kKeptBytes) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
  }
  static Shelf& shelf() {
    static Shelf* const shelf = new Shelf;  // threads may outlive what is destroyed when a process ends
    return *shelf;
  }
  static Buffer take() {
    const std::lock_guard<std::mutex> lock(shelf().mutex);
    auto& buffers = shelf().buffers;
    if (buffers.empty()) return {};
    const auto own = std::find_if(buffers.begin(), buffers.end(), [](const Buffer& one) {
      return one.last == std::this_thread::get_id();
    });
    std::swap(own == buffers.end() ? buffers.back() : *own, buffers.back());
    Buffer taken = std::move(buffers.back());
    buffers.pop_back();
    return taken;
  }

  Buffer buffer_;
};

}  // namespace jboost

#endif  // JBOOST_SCRATCH_H_
