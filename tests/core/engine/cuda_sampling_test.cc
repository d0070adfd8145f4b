// Requests whose tokens a GPU chooses against the same requests where the host
// does, since it is asked for their logits.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/engine_harness.h"

namespace inlay {
namespace {

using testing::EngineHarness;
using testing::GoldenModel;
using testing::Outcome;
using testing::RandomTokens;
using testing::TokenRequest;

EngineOptions OnGpu() {
  EngineOptions options;
  options.backend = Backend::kCuda;
  options.scheduler.max_batch_tokens = 64;
  options.scheduler.max_running = 8;
  return options;
}

constexpr int32_t kVocab = 512;  // of the models

ModelOptions SmallCache() {
  ModelOptions options;
  options.kv_budget_bytes = 64 << 20;
  return options;
}

class CudaSamplingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto device = CreateCudaDevice(0, 0);
    if (!device.ok()) GTEST_SKIP() << "needs a GPU: " << device.status();
  }
};

std::vector<SamplingParams> Options() {
  std::vector<SamplingParams> options(8);
  options[1].temperature = 1;
  options[2] = {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f};
  options[3] = {.temperature = 1.3f, .top_p = 0.9f, .min_p = 0.02f};
  options[4] = {.temperature = 1, .repetition_penalty = 1.2f};
  options[5] = {.temperature = 0,
                .repetition_penalty = 1.5f,
                .frequency_penalty = 0.5f,
                .presence_penalty = 0.5f,
                .penalty_last_n = 20};
  options[6] = {.temperature = 1,
                .logit_bias = {{3, 4.0f}, {7, 4.0f}, {3, 1.0f}},
                .banned_tokens = {5, 6, 7}};
  options[7] = {.temperature = 2, .top_k = 5};
  for (size_t i = 0; i < options.size(); ++i) options[i].seed = 1000 + i;
  return options;
}

TEST_F(CudaSamplingTest, TheTokensOfTheHost) {
  for (const char* name : {"llama3", "gemma2"}) {
    SCOPED_TRACE(name);
    EngineHarness gpu(GoldenModel(name), OnGpu(), SmallCache());
    ASSERT_TRUE(gpu.ok());
    for (const SamplingParams& sampling : Options()) {
      RequestOptions request = TokenRequest(RandomTokens(3, 30), 40);
      request.ignore_eos = true;
      request.sampling = sampling;
      const std::vector<int32_t> tokens = gpu.RunAlone(request).tokens;
      EXPECT_EQ(tokens.size(), 40u);
      request.logits = LogitsMode::kGenerated;
      const Outcome asked = gpu.RunAlone(request);
      EXPECT_EQ(asked.logits.size(), 40u);
      EXPECT_EQ(tokens, asked.tokens) << "seed " << sampling.seed;
    }
  }
}

TEST_F(CudaSamplingTest, MixedBatchesFinish) {
  EngineHarness gpu(GoldenModel("llama3"), OnGpu(), SmallCache());
  ASSERT_TRUE(gpu.ok());
  std::vector<RequestOptions> requests;
  for (const SamplingParams& sampling : Options()) {
    for (const int32_t num_logprobs : {-1, 3}) {
      requests.push_back(
          TokenRequest(RandomTokens(sampling.seed, 10 + requests.size()), 25));
      requests.back().ignore_eos = true;
      requests.back().sampling = sampling;
      requests.back().sampling.num_logprobs = num_logprobs;
    }
  }
  const auto outcomes = gpu.RunTogether(requests);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    EXPECT_TRUE(outcomes[i].finish.status.ok()) << i;
    EXPECT_EQ(outcomes[i].tokens.size(), 25u) << i;
    EXPECT_EQ(outcomes[i].logprobs.empty(),
              requests[i].sampling.num_logprobs < 0);
  }
}

TEST_F(CudaSamplingTest, NothingLeftToSampleIsTheRequestsError) {
  EngineHarness gpu(GoldenModel("llama3"), OnGpu(), SmallCache());
  ASSERT_TRUE(gpu.ok());
  RequestOptions request = TokenRequest(RandomTokens(3, 30), 5);
  for (int32_t t = 0; t < kVocab; ++t) {
    request.sampling.banned_tokens.push_back(t);
  }
  const Outcome outcome = gpu.RunAlone(request);
  EXPECT_EQ(outcome.finish.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(outcome.finish.status.message())
                .find("no token is left to sample"),
            std::string::npos);
}

}  // namespace
}  // namespace inlay
