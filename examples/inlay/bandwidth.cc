#include "examples/inlay/bandwidth.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

namespace inlay::cli {
namespace {

constexpr size_t kWords = (size_t{512} << 20) / sizeof(uint64_t);
// Streams that a thread reads at once, a line of each in turn, as processors
// fetch more with several than with one; each asked for in advance, as on some
// what finds streams by itself leaves half of memory's rate.
constexpr size_t kStreams = 4;
constexpr size_t kLine = 64 / sizeof(uint64_t);
constexpr size_t kAhead = 1024 / sizeof(uint64_t);
constexpr size_t kRound = kStreams * kLine;

// As many instructions as the function that this becomes a part of needs.
using Line = uint64_t __attribute__((vector_size(64)));

// `count`: a multiple of kRound.
inline __attribute__((always_inline)) uint64_t Sum(const uint64_t* words,
                                                   size_t count) {
  Line sums[kStreams] = {};  // independent: the loads set the pace
  const size_t length = count / kStreams;
  for (size_t i = 0; i < length; i += kLine) {
#pragma GCC unroll 4
    for (size_t stream = 0; stream < kStreams; ++stream) {
      const uint64_t* from = words + stream * length + i;
      if (i + kAhead < length) __builtin_prefetch(from + kAhead);
      Line line;
      std::memcpy(&line, from, sizeof(line));
      sums[stream] += line;
    }
  }
  uint64_t total = 0;
  for (const Line& sum : sums) {
    for (size_t j = 0; j < kLine; ++j) total += sum[j];
  }
  return total;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) uint64_t SumWide(const uint64_t* words,
                                                    size_t count) {
  return Sum(words, count);
}
#endif

}  // namespace

uint64_t SumWords(const uint64_t* words, size_t count) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return SumWide(words, count);
#endif
  return Sum(words, count);
}

ReadBandwidth::ReadBandwidth(int num_threads)
    : num_threads_(num_threads), words_(kWords, 1) {}

double ReadBandwidth::Measure() {
  std::atomic<uint64_t> total{sum_};
  const auto work = [&](int thread) {
    const auto share = [&](int i) {
      return kWords / kRound * static_cast<size_t>(i) /
             static_cast<size_t>(num_threads_) * kRound;
    };
    const size_t first = share(thread);
    total += SumWords(words_.data() + first, share(thread + 1) - first);
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
