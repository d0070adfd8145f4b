#include "examples/inlay/bandwidth.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

namespace inlay::cli {
namespace {

constexpr size_t kWords = (size_t{128} << 20) / sizeof(uint64_t);
constexpr size_t kUnroll = 16;  // independent sums: the loads set the pace

uint64_t Sum(const uint64_t* words, size_t count) {
  uint64_t sums[kUnroll] = {};
  for (size_t i = 0; i + kUnroll <= count; i += kUnroll) {
    for (size_t j = 0; j < kUnroll; ++j) sums[j] += words[i + j];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

Bandwidth::Bandwidth(int num_threads)
    : num_threads_(num_threads), from_(kWords, 1), to_(kWords, 2) {}

double Bandwidth::Time(const std::function<void(size_t, size_t)>& work) const {
  const auto share = [&](int thread) {
    return kWords / kUnroll * static_cast<size_t>(thread) /
           static_cast<size_t>(num_threads_) * kUnroll;
  };
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads_; ++i) {
    threads.emplace_back(work, share(i), share(i + 1));
  }
  work(share(0), share(1));
  for (std::thread& thread : threads) thread.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

double Bandwidth::Copy() {
  const double seconds = Time([this](size_t first, size_t last) {
    std::memcpy(to_.data() + first, from_.data() + first,
                (last - first) * sizeof(uint64_t));
  });
  return 2e-9 * static_cast<double>(kWords * sizeof(uint64_t)) / seconds;
}

double Bandwidth::Read() {
  std::atomic<uint64_t> total{sum_};
  const double seconds = Time([&](size_t first, size_t last) {
    total += Sum(from_.data() + first, last - first);
  });
  sum_ = total;
  return 1e-9 * static_cast<double>(kWords * sizeof(uint64_t)) / seconds;
}

}  // namespace inlay::cli
