// ThreadPool: the engine's own worker threads for CPU kernels. Knows nothing of
// kernels or devices.
#ifndef INLAY_MEMORY_DEVICE_THREAD_POOL_H_
#define INLAY_MEMORY_DEVICE_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "memory/device/thread.h"

namespace inlay {

// Runs loops over worker threads plus the calling thread, one loop at a time
// (the step thread's): a caller that finds the workers taken, by another thread
// or by a loop around it, runs its loop alone. With one thread it starts none
// and runs loops inline.
class ThreadPool {
 public:
  // Range [begin, end) of a loop's indices.
  using Body = absl::FunctionRef<void(int64_t begin, int64_t end)>;

  static constexpr int kMaxThreads = 1024;

  // The cores that this process may run on, which a container or taskset may
  // have narrowed; in [1, kMaxThreads].
  static int NumUsableCores();

  // `num_threads` counts the caller: num_threads - 1 workers are started.
  // INVALID_ARGUMENT outside [1, kMaxThreads]; RESOURCE_EXHAUSTED when the
  // system refuses one; OUT_OF_MEMORY.
  static absl::StatusOr<std::unique_ptr<ThreadPool>> Create(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body on disjoint ranges of at least `grain` indices that together
  // cover [0, size), and returns when all are done. Which thread runs which
  // range is unspecified, so the body's result must not depend on it. The body
  // must not throw.
  void ParallelFor(int64_t size, int64_t grain, Body body);

  // Ends the workers and returns when they have ended, after a loop that they
  // are in: loops run on their callers alone from then on. From any thread but
  // those that run a loop's body; again does nothing.
  void Stop();

 private:
  struct Loop;

  ThreadPool() = default;
  void WorkerMain();
  void RunOnWorkers(Loop& loop);
  static void RunChunks(Loop& loop);

  // Workers watch `generation_`: odd while they should pick up `loop_`, bumped
  // again when it is withdrawn.
  std::atomic<uint32_t> generation_{0};
  std::atomic<Loop*> loop_{nullptr};
  std::atomic<int> inside_{0};  // workers that may be looking at *loop_
  std::atomic<bool> busy_{false};
  std::atomic<bool> stopping_{false};  // Stop was called
  std::atomic<bool> stop_{false};
  std::vector<Thread> workers_;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_DEVICE_THREAD_POOL_H_
