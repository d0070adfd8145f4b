// Times a sample over a 128k vocabulary: medians and best of many runs.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

#include "core/sampling/sampler.h"

namespace inlay {
namespace {

constexpr int64_t kVocab = 128256;
constexpr int kRuns = 300;

struct Case {
  const char* name;
  SamplingParams params;
};

// Peaked as a language model's: a few thousand tokens above a normal bulk.
std::vector<float> PeakedLogits(std::mt19937& rng) {
  std::normal_distribution<float> normal(0, 2.2f);
  std::exponential_distribution<float> tail(0.5f);
  std::vector<float> logits(kVocab);
  for (float& x : logits) x = normal(rng);
  for (int i = 0; i < 2000; ++i) logits[rng() % kVocab] = 4 + tail(rng);
  return logits;
}

std::vector<float> FlatLogits(std::mt19937& rng) {
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> logits(kVocab);
  for (float& x : logits) x = normal(rng);
  return logits;
}

void Run(const char* shape, const std::vector<float>& logits) {
  const Case cases[] = {
      {"greedy", {}},
      {"greedy + 20 logprobs", {.num_logprobs = 20}},
      {"temperature", {.temperature = 1}},
      {"top_k 40", {.temperature = 1, .top_k = 40}},
      {"top_k 1000", {.temperature = 1, .top_k = 1000}},
      {"top_k 20000", {.temperature = 1, .top_k = 20000}},
      {"top_p 0.95", {.temperature = 1, .top_p = 0.95f}},
      {"top_k 40, top_p 0.95",
       {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f}},
      {"min_p 0.05", {.temperature = 1, .min_p = 0.05f}},
      {"repetition 1.1, 4k prompt",
       {.temperature = 1, .top_k = 40, .repetition_penalty = 1.1f}},
  };
  std::vector<int32_t> prompt(4096);
  for (size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<int32_t>(i * 31);
  }
  for (const Case& c : cases) {
    Sampler sampler = *Sampler::Create(c.params, kVocab);
    sampler.ObservePrompt(prompt);
    std::vector<double> times;
    int64_t sum = 0;
    for (int run = 0; run < kRuns; ++run) {
      std::vector<float> scratch = logits;
      const auto start = std::chrono::steady_clock::now();
      const auto result = sampler.Sample(absl::MakeSpan(scratch));
      const auto end = std::chrono::steady_clock::now();
      times.push_back(
          std::chrono::duration<double, std::micro>(end - start).count());
      sum += result.ok() ? result->token : -1;
      sampler.Observe(0);
    }
    std::sort(times.begin(), times.end());
    std::printf("%-7s %-28s median %7.1f us  best %7.1f us  (%lld)\n", shape,
                c.name, times[kRuns / 2], times[0],
                static_cast<long long>(sum));
  }
}

}  // namespace
}  // namespace inlay

int main() {
  std::mt19937 rng(1);
  inlay::Run("peaked", inlay::PeakedLogits(rng));
  inlay::Run("flat", inlay::FlatLogits(rng));
  return 0;
}
