// inlay bench: what its two halves share.
#ifndef INLAY_EXAMPLES_INLAY_BENCH_H_
#define INLAY_EXAMPLES_INLAY_BENCH_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "examples/inlay/common.h"

namespace inlay::cli {

struct BenchOptions {
  std::string path;
  // Prompt and generation speed.
  size_t prompt_tokens = 512;
  size_t gen_tokens = 128;
  size_t batch = 1;
  size_t repeat = 5;
  // Load; any of the first two asks for it.
  std::optional<int64_t> requests, concurrency;
  size_t shared_prefix = 0;
  std::optional<double> rate;
  size_t in = 256;
  size_t out = 64;
};

// Prompts that no two runs share, so that no prefix is found in the cache
// unless it is meant to be.
class RandomTokens {
 public:
  explicit RandomTokens(uint64_t vocab_size)
      : draw_(0, static_cast<int32_t>(vocab_size) - 1) {}
  std::vector<int32_t> Take(size_t count) {
    std::vector<int32_t> tokens(count);
    for (int32_t& token : tokens) token = draw_(engine_);
    return tokens;
  }
  std::mt19937_64& engine() { return engine_; }

 private:
  std::mt19937_64 engine_{20260101};
  std::uniform_int_distribution<int32_t> draw_;
};

inline double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

Outcome BenchSpeed(Host& host, const BenchOptions& options,
                   const CommonOptions& common);
Outcome BenchLoad(Host& host, const BenchOptions& options,
                  const CommonOptions& common);

}  // namespace inlay::cli

#endif  // INLAY_EXAMPLES_INLAY_BENCH_H_
