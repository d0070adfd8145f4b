// The protocol: the caller publishes a loop that lives on its stack, takes part
// in it, withdraws it, and leaves when no worker is inside. A worker counts
// itself in *before* it looks whether a loop is published, the caller withdraws
// *before* it reads the count; both are sequentially consistent, so a worker
// that sees the loop is always waited for.
#include "memory/device/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include "memory/formatted_string.h"
#include "memory/status.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace inlay {
namespace {

// Longer than the gap between two kernels of a step, shorter than anyone
// notices when the engine falls idle.
constexpr std::chrono::microseconds kSpinTime(50);
// Several chunks a thread even out threads that the system slows or preempts.
constexpr int64_t kChunksPerThread = 8;

void CpuPause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits a while for `done()`; false when it did not come. Yields between bursts
// of pauses: with more threads than cores the one waited for may need this
// core.
template <typename Done>
bool SpinUntil(Done done) {
  constexpr int kPausesPerBurst = 32;
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < kPausesPerBurst; ++i) {
      if (done()) return true;
      CpuPause();
    }
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < deadline);
  return done();
}

}  // namespace

struct ThreadPool::Loop {
  Body body;
  int64_t size;
  int64_t num_chunks;
  std::atomic<int64_t> next_chunk{0};
};

int ThreadPool::NumUsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = 0;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cores = CPU_COUNT(&set);
  if (cores < 1) cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores, 1, kMaxThreads);
}

absl::StatusOr<std::unique_ptr<ThreadPool>> ThreadPool::Create(
    int num_threads) {
  if (num_threads < 1 || num_threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        FormattedString("thread pool: %d threads asked for, 1 to %d allowed",
                        num_threads, kMaxThreads));
  }
  try {
    std::unique_ptr<ThreadPool> pool(new ThreadPool);
    pool->workers_.reserve(static_cast<size_t>(num_threads - 1));
    for (int i = 1; i < num_threads; ++i) {
      auto worker = Thread::Start([raw = pool.get()] { raw->WorkerMain(); });
      if (!worker.ok()) {
        return absl::ResourceExhaustedError(
            FormattedString("thread pool: thread %d of %d: %s", i + 1,
                            num_threads, worker.status().message()));
      }
      pool->workers_.push_back(*std::move(worker));
    }
    return pool;
  } catch (const std::bad_alloc&) {
    return OutOfMemoryError("thread pool: out of memory");
  }
}

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Stop() {
  if (stopping_.exchange(true)) return;
  // Taken for good: nobody gives the workers another loop.
  while (busy_.exchange(true)) std::this_thread::yield();
  stop_.store(true);
  generation_.fetch_add(2);  // stays even: no loop to pick up
  generation_.notify_all();
  for (Thread& worker : workers_) worker.Join();
}

void ThreadPool::ParallelFor(int64_t size, int64_t grain, Body body) {
  if (size <= 0) return;
  const int64_t num_chunks = std::min(size / std::max<int64_t>(grain, 1),
                                      kChunksPerThread * num_threads());
  if (workers_.empty() || num_chunks < 2 || busy_.exchange(true)) {
    body(0, size);
    return;
  }
  Loop loop{body, size, num_chunks};
  RunOnWorkers(loop);
  busy_.store(false);
}

void ThreadPool::RunOnWorkers(Loop& loop) {
  loop_.store(&loop);
  generation_.fetch_add(1);
  generation_.notify_all();
  RunChunks(loop);
  generation_.fetch_add(1);
  if (!SpinUntil([this] { return inside_.load() == 0; })) {
    for (int inside = inside_.load(); inside != 0; inside = inside_.load()) {
      inside_.wait(inside);
    }
  }
}

void ThreadPool::WorkerMain() {
  uint32_t seen = 0;
  while (true) {
    if (!SpinUntil([&] { return generation_.load() != seen; })) {
      generation_.wait(seen);
    }
    inside_.fetch_add(1);
    seen = generation_.load();
    if (seen % 2 == 1) RunChunks(*loop_.load());
    if (inside_.fetch_sub(1) == 1) inside_.notify_one();
    // After `seen`: who has seen the destructor's generation waits for no
    // other, and sees this, which was set before it.
    if (stop_.load()) return;
  }
}

void ThreadPool::RunChunks(Loop& loop) {
  // The first `rest` chunks are one index longer.
  const int64_t length = loop.size / loop.num_chunks;
  const int64_t rest = loop.size % loop.num_chunks;
  while (true) {
    const int64_t chunk = loop.next_chunk.fetch_add(1);
    if (chunk >= loop.num_chunks) return;
    const int64_t begin = chunk * length + std::min(chunk, rest);
    loop.body(begin, begin + length + (chunk < rest ? 1 : 0));
  }
}

}  // namespace inlay
