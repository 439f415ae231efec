// Work shared out over threads that others own.

#ifndef JBOOST_PARALLEL_H_
#define JBOOST_PARALLEL_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace jboost {

// Threads that others own. A scheduled task may start late or never, and where there is no room for it `schedule` may run
// it on the spot: nobody waits for one that has not started.
struct Pool {
  int64_t n_threads;
  std::function<void(std::function<void()>)> schedule;
  int64_t work_per_thread = 50000;  // additions and cells that are worth waking a thread for

  int64_t workers_for(int64_t work) const {
    return std::max<int64_t>(1, std::min(n_threads, work / work_per_thread));
  }
};

// The most threads that a call may use. Shared by the whole process.
inline std::atomic<int64_t>& thread_limit() {
  static std::atomic<int64_t> limit{int64_t{1} << 30};
  return limit;
}

// The caller and the helpers that happen to be free, doing one batch of units after another. Helpers stay for all
// batches, since waking a thread takes longer than a small batch. Which of them does a unit is open.
class Crew {
 public:
  Crew(const Pool& pool, int64_t n_workers) {
    const std::thread::id caller = std::this_thread::get_id();
    for (int64_t i = 1; i < n_workers; ++i)
      pool.schedule([board = board_, caller] {
        if (std::this_thread::get_id() != caller) board->help();  // which the caller would wait for itself to end
      });
  }
  ~Crew() {
    board_->closed = true;
    while (board_->n_helping > 0) std::this_thread::yield();
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // Does work(unit, worker) for each of n_units, in any order, and returns when all are done. It must not throw.
  // Workers are numbered from 0, the caller, to n_workers - 1: each may have memory of its own.
  void run(int64_t n_units, const std::function<void(int64_t, int64_t)>& work) {
    if (n_units <= 0) return;
    board_->work = &work;
    board_->n_pending = n_units;
    board_->n_unclaimed = n_units;  // from here on helpers take part
    for (int64_t unit; (unit = board_->claim()) >= 0;) board_->finish(unit, 0);
    for (int64_t i = 0; board_->n_pending > 0; ++i) wait(i);
  }

 private:
  static void wait(int64_t times) {
    constexpr int64_t spins = 1000;  // a few microseconds; then others may need the core
    if (times >= spins) return std::this_thread::yield();
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }

  // Outlives the crew in tasks that start after it. Whoever has claimed a unit keeps `work` alive by not having
  // finished it.
  struct Board {
    const std::function<void(int64_t, int64_t)>* work = nullptr;
    std::atomic<int64_t> n_unclaimed{0}, n_pending{0}, n_helping{0}, n_came{0};
    std::atomic<bool> closed{false};

    int64_t claim() {
      int64_t left = n_unclaimed;
      while (left > 0 && !n_unclaimed.compare_exchange_weak(left, left - 1)) {
      }
      return left - 1;
    }
    void finish(int64_t unit, int64_t worker) {
      (*work)(unit, worker);
      --n_pending;
    }
    void help() {
      const int64_t worker = ++n_came;
      ++n_helping;
      for (int64_t idle = 0; !closed; ++idle) {
        const int64_t unit = claim();
        if (unit < 0) {
          wait(idle);
          continue;
        }
        finish(unit, worker);
        idle = 0;
      }
      --n_helping;
    }
  };
  std::shared_ptr<Board> board_ = std::make_shared<Board>();
};

// Threads for a call from outside of XLA: each starts with a task, and all are waited for at the end, after the crew's.
class OwnThreads {
 public:
  OwnThreads() = default;
  ~OwnThreads() {
    for (std::thread& thread : threads_) thread.join();
  }
  OwnThreads(const OwnThreads&) = delete;
  OwnThreads& operator=(const OwnThreads&) = delete;

  Pool pool(int64_t most) {
    constexpr int64_t work_per_thread = 1 << 16;  // starting one takes longer than waking it
    const auto start = [this](std::function<void()> task) {
      try {
        threads_.emplace_back(std::move(task));
      } catch (const std::exception&) {  // no more threads: those that are there do it
      }
    };
    return {std::max<int64_t>(1, std::min<int64_t>(most, thread_limit())), start, work_per_thread};
  }

 private:
  std::vector<std::thread> threads_;
};

}  // namespace jboost

#endif  // JBOOST_PARALLEL_H_
