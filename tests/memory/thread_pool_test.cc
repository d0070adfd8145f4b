#include "memory/device/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

namespace inlay {
namespace {

TEST(ThreadPoolTest, RefusesAbsurdThreadCounts) {
  for (const int threads : {-1, 0, ThreadPool::kMaxThreads + 1}) {
    EXPECT_EQ(ThreadPool::Create(threads).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(ThreadPoolTest, CoversEveryIndexOnceInRangesOfTheGrain) {
  for (const int threads : {1, 2, 3, 8}) {
    auto pool = *ThreadPool::Create(threads);
    EXPECT_EQ(pool->num_threads(), threads);
    for (const int64_t size : {0, 1, 2, 3, 7, 8, 9, 100, 1001}) {
      for (const int64_t grain : {0, 1, 2, 7, 1000, 2000}) {
        std::vector<int> visits(static_cast<size_t>(size));
        std::mutex mutex;
        int64_t shortest = std::numeric_limits<int64_t>::max();
        pool->ParallelFor(size, grain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            ++visits[static_cast<size_t>(i)];
          }
          std::lock_guard lock(mutex);
          shortest = std::min(shortest, end - begin);
        });
        EXPECT_TRUE(std::all_of(visits.begin(), visits.end(),
                                [](int count) { return count == 1; }));
        EXPECT_GE(shortest, std::min(size, grain));
      }
    }
  }
}

TEST(ThreadPoolTest, HugeSizesDoNotOverflow) {
  auto pool = *ThreadPool::Create(3);
  constexpr int64_t kSize = std::numeric_limits<int64_t>::max();
  std::mutex mutex;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  pool->ParallelFor(kSize, 1, [&](int64_t begin, int64_t end) {
    std::lock_guard lock(mutex);
    ranges.emplace_back(begin, end);
  });
  std::sort(ranges.begin(), ranges.end());
  int64_t next = 0;
  for (const auto& [begin, end] : ranges) {
    EXPECT_EQ(begin, next);
    next = end;
  }
  EXPECT_EQ(next, kSize);
}

// Short loops back to back, with pauses that let the workers fall asleep: a
// lost wake-up would hang here, a loop left too early would corrupt its sum.
TEST(ThreadPoolTest, ManyShortLoops) {
  auto pool = *ThreadPool::Create(4);
  for (int loop = 0; loop < 3000; ++loop) {
    if (loop % 300 == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::vector<int64_t> values(64);
    pool->ParallelFor(64, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        values[static_cast<size_t>(i)] = i + loop;
      }
    });
    const int64_t sum =
        std::accumulate(values.begin(), values.end(), int64_t{0});
    ASSERT_EQ(sum, 64 * 63 / 2 + int64_t{64} * loop);
  }
}

TEST(ThreadPoolTest, NestedAndConcurrentLoopsRunAlone) {
  auto pool = *ThreadPool::Create(3);
  std::atomic<int64_t> total{0};
  const auto run = [&] {
    for (int i = 0; i < 100; ++i) {
      pool->ParallelFor(8, 1, [&](int64_t begin, int64_t end) {
        pool->ParallelFor(end - begin, 1, [&](int64_t first, int64_t last) {
          total.fetch_add(last - first);
        });
      });
    }
  };
  std::thread other(run);
  run();
  other.join();
  EXPECT_EQ(total.load(), 2 * 100 * 8);
}

// The end may come while a worker is still looking at what it was woken for.
TEST(ThreadPoolTest, DestroysPoolsThatHaveJustRun) {
  for (int i = 0; i < 3000; ++i) {
    auto pool = *ThreadPool::Create(2 + i % 3);
    pool->ParallelFor(10, 1, [](int64_t, int64_t) {});
  }
}

// Loops go on while and after the workers are ended.
TEST(ThreadPoolTest, StopsUnderLoops) {
  for (int turn = 0; turn < 50; ++turn) {
    auto pool = *ThreadPool::Create(3);
    std::atomic<bool> stopped{false};
    std::atomic<int64_t> total{0};
    std::thread other([&] {
      bool last = false;
      while (!last) {
        last = stopped.load();
        int64_t sum = 0;
        std::mutex mutex;
        pool->ParallelFor(64, 1, [&](int64_t begin, int64_t end) {
          const std::lock_guard<std::mutex> lock(mutex);
          sum += end - begin;
        });
        EXPECT_EQ(sum, 64);
        total.fetch_add(sum);
      }
    });
    while (total.load() == 0) std::this_thread::yield();
    pool->Stop();
    pool->Stop();
    stopped.store(true);
    other.join();
    const auto self = std::this_thread::get_id();
    pool->ParallelFor(64, 1, [&](int64_t, int64_t) {
      EXPECT_EQ(std::this_thread::get_id(), self);
    });
  }
}

TEST(ThreadPoolTest, CreatesAndDestroysIdlePools) {
  for (int i = 0; i < 20; ++i) {
    auto pool = *ThreadPool::Create(1 + i % 4);
    if (i % 3 == 0) pool->ParallelFor(10, 1, [](int64_t, int64_t) {});
  }
}

}  // namespace
}  // namespace inlay
