// Work shared out over threads that others own.

#ifndef JBOOST_PARALLEL_H_
#define JBOOST_PARALLEL_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

namespace jboost {

// Threads that others own. A scheduled task may start late or never: nobody waits for one that has not started.
struct Pool {
  int64_t n_threads;
  std::function<void(std::function<void()>)> schedule;
  int64_t work_per_thread = 200000;  // additions and cells that are worth waking a thread for
};

// Runs work(0) here and work(1), work(2), ... on threads that happen to be free. The work must be claimed, not assigned.
template <typename Work>
void in_parallel(const Pool& pool, int64_t n_workers, const Work& work) {
  struct Crew {
    std::mutex mutex;
    std::condition_variable finished;
    int64_t started = 1, running = 0;
    bool closed = false;
  };
  if (n_workers <= 1) return work(int64_t{0});
  auto crew = std::make_shared<Crew>();  // outlives this call in tasks that start after it
  for (int64_t i = 1; i < n_workers; ++i) {
    pool.schedule([crew, &work] {
      std::unique_lock<std::mutex> lock(crew->mutex);
      if (crew->closed) return;
      const int64_t worker = crew->started++;
      ++crew->running;
      lock.unlock();
      work(worker);
      lock.lock();
      if (--crew->running == 0) crew->finished.notify_one();
    });
  }
  work(int64_t{0});
  std::unique_lock<std::mutex> lock(crew->mutex);
  crew->closed = true;
  crew->finished.wait(lock, [&] { return crew->running == 0; });
}

}  // namespace jboost

#endif  // JBOOST_PARALLEL_H_
