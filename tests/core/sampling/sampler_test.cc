// Sampler against the naive pipeline, draw by draw and as a distribution.
#include "core/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/sample/logit_blocks.h"
#include "kernels/sample/philox.h"
#include "kernels/sample/sample.h"
#include "tests/core/sampling/naive_sampler.h"
#include "tests/core/sampling/special_floats.h"
#include "tests/support/kernel_test_util.h"

namespace inlay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kMaxFloat = std::numeric_limits<float>::max();

Sampler Make(const SamplingParams& params, size_t vocab) {
  absl::StatusOr<Sampler> sampler =
      Sampler::Create(params, static_cast<int64_t>(vocab));
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  return *std::move(sampler);
}

// By value: Sample may change its logits.
SampleResult SampleFrom(const Sampler& sampler, std::vector<float> logits,
                        absl::Span<const uint32_t> allowed = {}) {
  absl::StatusOr<SampleResult> result =
      sampler.Sample(absl::MakeSpan(logits), allowed);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : SampleResult{.token = -1};
}

absl::Status ErrorOf(const SamplingParams& params, std::vector<float> logits) {
  return Make(params, logits.size()).Sample(absl::MakeSpan(logits)).status();
}

std::vector<float> MixedLogits(std::mt19937& rng, size_t size) {
  std::normal_distribution<float> normal(0, 3);
  const uint32_t kind = rng() % 4;
  std::vector<float> logits(size);
  for (float& x : logits) {
    x = normal(rng);
    if (kind == 1) x = std::round(x);  // many ties
    if (kind == 2 && rng() % 3 == 0) x = -kInf;
    if (kind == 3) x = x * 1e-3f + 100;  // nearly flat, far from 0
  }
  logits[rng() % size] = 5;  // at least one finite
  return logits;
}

SamplingParams RandomParams(std::mt19937& rng, size_t vocab) {
  const auto uniform = [&](float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(rng);
  };
  const auto maybe = [&] { return rng() % 2 == 0; };
  SamplingParams p;
  p.seed = uint64_t{rng()} << 32 | rng();
  p.temperature = maybe() ? 1.0f : uniform(0.2f, 3.0f);
  if (maybe()) p.top_k = static_cast<int32_t>(1 + rng() % (vocab + 5));
  if (maybe()) p.top_p = uniform(0, 1);
  if (maybe()) p.min_p = uniform(0, 0.3f);
  if (maybe()) p.repetition_penalty = uniform(0.7f, 1.5f);
  if (maybe()) p.frequency_penalty = uniform(-1, 1);
  if (maybe()) p.presence_penalty = uniform(-1, 1);
  if (maybe()) p.penalty_last_n = static_cast<int32_t>(rng() % 30);
  for (uint32_t i = rng() % 3; i > 0 && vocab > 3; --i) {
    p.logit_bias.emplace_back(rng() % vocab, uniform(-3, 3));
  }
  if (maybe() && vocab > 3) p.banned_tokens = {static_cast<int32_t>(vocab / 2)};
  return p;
}

void ExpectDrawsLikeNaive(uint32_t seed, size_t vocab, int* compared,
                          int* skipped) {
  std::mt19937 rng(seed);
  const std::vector<float> logits = MixedLogits(rng, vocab);
  const SamplingParams params = RandomParams(rng, vocab);
  TokenLog log;
  log.num_prompt = rng() % 40;
  log.tokens.resize(log.num_prompt + rng() % 20);
  // From a few, so that tokens repeat.
  for (int32_t& t : log.tokens) t = static_cast<int32_t>(rng() % 10 % vocab);

  Sampler sampler = Make(params, vocab);
  const absl::Span<const int32_t> tokens = log.tokens;
  sampler.ObservePrompt(tokens.first(log.num_prompt));
  for (int32_t t : tokens.subspan(log.num_prompt)) sampler.Observe(t);
  const std::vector<float> adjusted = NaiveAdjust(params, logits, log);
  const NaiveDistribution naive = NaiveDistributionOf(params, adjusted);
  if (naive.total == 0) {  // the ban took the only finite logit
    EXPECT_FALSE(ErrorOf(params, logits).ok());
    return;
  }
  constexpr int kDraws = 8;
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t index = uint64_t{rng()} << 20;
    const int32_t expected = NaiveDraw(
        naive, static_cast<double>(DrawBits(params.seed, index)) * 0x1p-64);
    sampler.set_state({params.seed, index});
    const int32_t token = SampleFrom(sampler, logits).token;
    ASSERT_GE(token, 0);
    if (naive.ambiguous || expected < 0) {
      ++*skipped;
      continue;
    }
    ++*compared;
    ASSERT_EQ(token, expected)
        << "seed " << seed << " vocab " << vocab << " T " << params.temperature
        << " k " << params.top_k << " p " << params.top_p << " min_p "
        << params.min_p << " logit " << adjusted[token] << " not "
        << adjusted[expected];
  }
}

TEST(Sampler, DrawsEqualTheNaivePipeline) {
  int compared = 0, skipped = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    constexpr size_t kVocabs[] = {1, 2, 7, 63, 64, 65, 200, 1000};
    ExpectDrawsLikeNaive(seed, kVocabs[seed % 8], &compared, &skipped);
    if (HasFatalFailure()) return;
  }
  // Enough values for the mass histogram's levels.
  for (uint32_t seed = 10000; seed < 10120; ++seed) {
    ExpectDrawsLikeNaive(seed, 5000, &compared, &skipped);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(compared, 20000);
  EXPECT_LT(skipped, compared / 10);
}

// The chi-square value that a true null exceeds with probability 1e-6
// (Wilson-Hilferty; 4.753 is the normal quantile).
double ChiSquareLimit(double dof) {
  const double c = 2 / (9 * dof);
  return dof * std::pow(1 - c + 4.753 * std::sqrt(c), 3);
}

TEST(Sampler, FrequenciesFollowTheDistribution) {
  constexpr int kDraws = 20000;
  constexpr size_t kVocab = 150;
  std::mt19937 rng(5);
  std::vector<float> logits(kVocab);
  for (float& x : logits) x = std::normal_distribution<float>(0, 1.5f)(rng);
  std::vector<SamplingParams> cases(6);
  for (SamplingParams& p : cases) p.temperature = 1;
  cases[1].temperature = 2.5f;
  cases[2].top_k = 12;
  cases[3].top_p = 0.8f;
  cases[4].min_p = 0.07f;
  cases[5] = {.temperature = 0.8f, .top_k = 60, .top_p = 0.9f, .min_p = 0.02f};
  for (size_t c = 0; c < cases.size(); ++c) {
    const NaiveDistribution d = NaiveDistributionOf(cases[c], logits);
    Sampler sampler = Make(cases[c], kVocab);
    std::vector<int> hits(kVocab);
    for (int i = 0; i < kDraws; ++i) {
      ++hits[SampleFrom(sampler, logits).token];
      sampler.Observe(0);
    }
    // Cells expected fewer than 5 times are pooled, as the test's
    // approximation demands.
    double chi = 0, pooled_expected = 0, pooled_hits = 0;
    int cells = 0;
    const auto add = [&](double expected, double got) {
      chi += (got - expected) * (got - expected) / expected;
      ++cells;
    };
    for (size_t i = 0; i < kVocab; ++i) {
      const double expected = d.weights[i] / d.total * kDraws;
      if (expected == 0) {
        EXPECT_EQ(hits[i], 0) << "case " << c << " token " << i;
      } else if (expected < 5) {
        pooled_expected += expected;
        pooled_hits += hits[i];
      } else {
        add(expected, hits[i]);
      }
    }
    if (pooled_expected > 0) add(pooled_expected, pooled_hits);
    EXPECT_LT(chi, ChiSquareLimit(cells - 1)) << "case " << c;
  }
}

TEST(Sampler, GreedyTakesTheLowestOfTheLargest) {
  EXPECT_EQ(SampleFrom(Make({}, 5), {1, 3, 2, 3, -kInf}).token, 1);
  std::vector<float> logits(1000, -kInf);
  logits[777] = -kMaxFloat;
  EXPECT_EQ(SampleFrom(Make({}, 1000), logits).token, 777);
}

TEST(Sampler, ExtremesOfTemperatureAndLogits) {
  const std::vector<float> logits = {-kMaxFloat, 1, kMaxFloat, -kInf, 1};
  for (float t : {1e-45f, 1e-30f, 1.0f, kMaxTemperature}) {
    for (float p : {0.0f, 0.5f, 0.999f, 1.0f}) {
      const SamplingParams params{.temperature = t, .top_p = p, .min_p = 0.1f};
      EXPECT_EQ(SampleFrom(Make(params, 5), logits).token, 2) << t << " " << p;
    }
  }
  // Overflow of a penalty stays finite and keeps its order.
  SamplingParams boost{.repetition_penalty = 0.01f};
  Sampler sampler = Make(boost, 5);
  sampler.ObservePrompt({1, 2, -1, 5, 1 << 30});
  EXPECT_EQ(SampleFrom(sampler, logits).token, 2);
}

TEST(Sampler, AllEqualLogitsKeepTheLowestIds) {
  const std::vector<float> logits(3000, 2.5f);
  for (const auto& params :
       {SamplingParams{.temperature = 1, .top_k = 30},
        SamplingParams{.temperature = 1, .top_k = 30, .top_p = 0.9999f},
        SamplingParams{.temperature = 1, .top_p = 0.01f},
        SamplingParams{.temperature = 1, .top_k = 2000, .top_p = 0.015f}}) {
    Sampler sampler = Make(params, 3000);
    int32_t largest = 0;
    for (uint64_t i = 0; i < 400; ++i) {
      sampler.set_state({1, i});
      largest = std::max(largest, SampleFrom(sampler, logits).token);
    }
    EXPECT_EQ(largest, 29);
  }
}

TEST(Sampler, TokenDependsOnSeedIndexAndLogitsOnly) {
  std::mt19937 rng(1);
  const std::vector<float> logits = MixedLogits(rng, 500);
  const SamplingParams params{.temperature = 2, .seed = 9};
  Sampler sampler = Make(params, 500);
  std::vector<int32_t> run;
  for (int i = 0; i < 20; ++i) {
    run.push_back(SampleFrom(sampler, logits).token);
    EXPECT_EQ(SampleFrom(sampler, logits).token, run.back()) << "repeated";
    sampler.Observe(run.back());
  }
  Sampler restored = Make(params, 500);
  restored.set_state({9, 13});
  EXPECT_EQ(SampleFrom(restored, logits).token, run[13]);
  sampler.Reset();
  EXPECT_EQ(sampler.state().num_generated, 0u);
  EXPECT_EQ(SampleFrom(sampler, logits).token, run[0]);
  Sampler other = Make({.temperature = 2, .seed = 10}, 500);
  std::vector<int32_t> other_run;
  for (int i = 0; i < 20; ++i) {
    other_run.push_back(SampleFrom(other, logits).token);
    other.Observe(0);
  }
  EXPECT_NE(other_run, run);
}

TEST(Sampler, ResetForgetsPenalties) {
  Sampler sampler = Make({.presence_penalty = 2}, 2);
  sampler.Observe(1);
  EXPECT_EQ(SampleFrom(sampler, {1, 2}).token, 0);
  sampler.Reset();
  EXPECT_EQ(SampleFrom(sampler, {1, 2}).token, 1);
}

TEST(Sampler, PromptCountsForRepetitionOnly) {
  Sampler frequency = Make({.frequency_penalty = 2}, 2);
  frequency.ObservePrompt({1, 1});
  EXPECT_EQ(SampleFrom(frequency, {1, 2}).token, 1);
  Sampler repetition = Make({.repetition_penalty = 3}, 2);
  repetition.ObservePrompt({1});
  EXPECT_EQ(SampleFrom(repetition, {1, 2}).token, 0);
}

TEST(Sampler, LogprobsAreOfTheRawDistribution) {
  const std::vector<float> logits = {1, 2, 3, -kInf, 3};
  const SamplingParams params{.temperature = 0.5f,
                              .top_k = 1,
                              .repetition_penalty = 1.5f,
                              .logit_bias = {{0, 9}, {0, 1}},
                              .banned_tokens = {2},
                              .num_logprobs = 9};
  Sampler sampler = Make(params, 5);
  sampler.ObservePrompt({0, 1});
  const SampleResult result = SampleFrom(sampler, logits);
  EXPECT_EQ(result.token, 0);
  EXPECT_EQ(result.logprob, LogProbOf(logits, 0));
  std::vector<int32_t> ids;
  for (const TokenLogprob& t : result.top) {
    ids.push_back(t.token);
    EXPECT_EQ(t.logprob, LogProbOf(logits, t.token)) << t.token;
  }
  EXPECT_THAT(ids, ElementsAre(2, 4, 1, 0));

  const SampleResult none = SampleFrom(Make({}, 5), logits);
  EXPECT_TRUE(std::isnan(none.logprob));
  EXPECT_TRUE(none.top.empty());
  const SampleResult only = SampleFrom(Make({.num_logprobs = 0}, 5), logits);
  EXPECT_EQ(only.logprob, LogProbOf(logits, 2));
  EXPECT_TRUE(only.top.empty());
}

TEST(Sampler, MaskForbidsTokens) {
  std::vector<float> logits(70);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i);
  std::vector<uint32_t> allowed = {0, 1u << 4 | 1u << 7, ~0u << 6};
  Sampler greedy = Make({.num_logprobs = 1}, 70);
  const SampleResult result = SampleFrom(greedy, logits, allowed);
  EXPECT_EQ(result.token, 39);
  EXPECT_EQ(result.logprob, LogProbOf(logits, 39));
  EXPECT_EQ(result.top[0].token, 69);
  allowed = {0, 0, 0};
  EXPECT_EQ(greedy.Sample(absl::MakeSpan(logits), allowed).status().message(),
            "no token is left to sample: mask, bans and bias exclude all 70, "
            "allowed is at least one");
  allowed = {0, 0};
  EXPECT_EQ(greedy.Sample(absl::MakeSpan(logits), allowed).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Sampler, LogitsThatAreNotFinite) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), kInf}) {
    for (float temperature : {0.0f, 1.0f}) {
      std::vector<float> logits(100, 1);
      logits[97] = bad;
      const absl::Status status = ErrorOf({.temperature = temperature}, logits);
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("logits are not finite: logit 97 of 100 is"));
    }
  }
  const absl::Status status = ErrorOf({}, std::vector<float>(3, -kInf));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("all 3 are -inf"));
  EXPECT_EQ(ErrorOf({.banned_tokens = {0}}, {1}).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Sampler, BiasesOfATokenAddUp) {
  SamplingParams params{.logit_bias = {{2, 3}, {0, 1}, {2, -2.5f}}};
  EXPECT_EQ(SampleFrom(Make(params, 6), {1, 1.75f, 1.25f, 0, 0, 0}).token, 0);
  params.logit_bias.emplace_back(2, kMaxFloat);
  params.logit_bias.emplace_back(2, kMaxFloat);
  EXPECT_EQ(SampleFrom(Make(params, 6), {1, 1, 1, 1, 1, 1}).token, 2);
}

TEST(Sampler, WeightsAddUpExactly) {
  // In fixed point, whatever their order: the same draws for the same
  // distribution with its tokens renamed.
  std::mt19937 rng(3);
  std::vector<float> logits = MixedLogits(rng, 4000);
  std::sort(logits.begin(), logits.end());
  const std::vector<float> backwards(logits.rbegin(), logits.rend());
  const auto mass = [](const std::vector<float>& x) {
    const LogitBlocks blocks = ScanLogits(x);
    return MassOf(x, blocks, {blocks.max, 1}, {-kInf, 0}, nullptr);
  };
  EXPECT_EQ(mass(logits), mass(backwards));
  EXPECT_EQ(mass({0, 0, -kInf, 0, -100}), uint64_t{3} << 38);
}

TEST(Sampler, TheOpChoosesTheSame) {
  const ::inlay::testing::TestCpu cpu(1);
  std::mt19937 rng(77);
  for (int i = 0; i < 300; ++i) {
    const size_t vocab = 1 + rng() % 700;
    std::vector<float> logits = MixedLogits(rng, vocab);
    Sampler sampler = Make(RandomParams(rng, vocab), vocab);
    std::vector<int32_t> prompt(rng() % 30);
    for (int32_t& t : prompt) t = static_cast<int32_t>(rng() % 800) - 50;
    sampler.ObservePrompt(prompt);
    sampler.Observe(static_cast<int32_t>(rng() % vocab));
    std::vector<uint32_t> mask((vocab + 31) / 32);
    for (uint32_t& word : mask) word = rng() | rng();
    const bool masked = i % 2 == 0;

    std::vector<LogitEdit> edits;
    SampleOptions options = sampler.Options();
    sampler.AppendEdits(edits);
    options.num_edits = static_cast<int32_t>(edits.size());
    options.first_mask_word = masked ? 0 : -1;
    std::vector<float> scratch = logits;
    int32_t token = 1000;
    const SampleParams params = {
        MatrixView(reinterpret_cast<std::byte*>(scratch.data()), DType::kF32, 1,
                   static_cast<int64_t>(vocab)),
        &options, edits.data(), mask.data(), &token};
    ASSERT_TRUE(SampleTable()
                    .back()
                    .run({params.logits.cols()}, params, *cpu.stream)
                    .ok());
    const auto result = sampler.Sample(absl::MakeSpan(logits),
                                       masked ? mask : std::vector<uint32_t>());
    EXPECT_EQ(token, result.ok() ? result->token : kSampleNothingLeft) << i;
  }
}

TEST(Sampler, RefusesWrongSizesAndOptions) {
  std::vector<float> logits(9);
  EXPECT_EQ(Make({}, 10).Sample(absl::MakeSpan(logits)).status().message(),
            "logits has 9 values, allowed is the vocabulary's 10");
  EXPECT_EQ(Sampler::Create({.temperature = -1}, 10).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace inlay
