#include "examples/inlay/bandwidth.h"

#include <atomic>
#include <chrono>
#include <thread>

namespace inlay::cli {
namespace {

constexpr size_t kWords = (size_t{512} << 20) / sizeof(uint64_t);
constexpr size_t kUnroll = 16;  // independent sums: the loads set the pace

// Words asked for in advance: on some processors what finds streams by itself
// leaves half of memory's rate.
constexpr size_t kAhead = 2048 / sizeof(uint64_t);
constexpr size_t kLine = 64 / sizeof(uint64_t);

uint64_t Sum(const uint64_t* words, size_t count) {
  uint64_t sums[kUnroll] = {};
  for (size_t i = 0; i + kUnroll <= count; i += kUnroll) {
    for (size_t j = 0; j < kUnroll && i + kAhead + j < count; j += kLine) {
      __builtin_prefetch(words + i + kAhead + j);
    }
    for (size_t j = 0; j < kUnroll; ++j) sums[j] += words[i + j];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

ReadBandwidth::ReadBandwidth(int num_threads)
    : num_threads_(num_threads), words_(kWords, 1) {}

double ReadBandwidth::Measure() {
  std::atomic<uint64_t> total{sum_};
  const auto work = [&](int thread) {
    const auto share = [&](int i) {
      return kWords / kUnroll * static_cast<size_t>(i) /
             static_cast<size_t>(num_threads_) * kUnroll;
    };
    const size_t first = share(thread);
    total += Sum(words_.data() + first, share(thread + 1) - first);
  };
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads_; ++i) threads.emplace_back(work, i);
  work(0);
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - begin;
  sum_ = total;
  return 1e-9 * static_cast<double>(kWords * sizeof(uint64_t)) /
         seconds.count();
}

}  // namespace inlay::cli
