// inlay bench: what its parts share.
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
  // Load; `requests`, `concurrency` or `sweep` asks for it.
  std::optional<int64_t> requests, concurrency;
  std::vector<size_t> sweep;  // of concurrencies
  size_t shared_prefix = 0;   // tokens
  std::optional<double> rate;
  size_t in = 256;
  size_t out = 64;
  // A long prompt while others generate; `long_prompt` asks for it.
  std::optional<size_t> long_prompt;
  size_t long_at = 32;
  std::vector<size_t> batch_tokens;  // max_batch_tokens to compare
  // Files for load and long prompts.
  std::optional<std::string> csv, svg;
};

// Prompts that no two seeds share, so that no prefix is found in the cache
// unless it is meant to be.
class RandomTokens {
 public:
  explicit RandomTokens(uint64_t vocab_size, uint64_t seed = 20260101)
      : engine_(seed), draw_(0, static_cast<int32_t>(vocab_size) - 1) {}
  std::vector<int32_t> Take(size_t count) {
    std::vector<int32_t> tokens(count);
    for (int32_t& token : tokens) token = draw_(engine_);
    return tokens;
  }
  std::mt19937_64& engine() { return engine_; }

 private:
  std::mt19937_64 engine_;
  std::uniform_int_distribution<int32_t> draw_;
};

inline double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

// {"mean", "p50", "p90", "p95", "p99", "max"}.
Json Distribution(const std::vector<double>& samples);
// A request of exactly `max_tokens`; `tokens` must outlive the submit.
inlay_request_options FixedRequest(const std::vector<int32_t>& tokens,
                                   size_t max_tokens);
// Replaces the file.
Outcome WriteFile(const std::string& path, const std::string& text);

Outcome BenchSpeed(Host& host, const BenchOptions& options,
                   const CommonOptions& common);
// Requests at each concurrency of the sweep, or at the only one.
Outcome BenchLoad(Host& host, const BenchOptions& options,
                  const CommonOptions& common);
// An engine for each max_batch_tokens.
Outcome BenchLongPrompt(const BenchOptions& options,
                        const CommonOptions& common);

}  // namespace inlay::cli

#endif  // INLAY_EXAMPLES_INLAY_BENCH_H_
