// The engine with experts in host memory on a GPU: recorded steps, steps begun
// ahead and batches give the tokens of a model with all experts on the device.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/formats/model_files.h"
#include "core/model/load_model.h"
#include "tests/support/engine_harness.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

using testing::EngineHarness;
using testing::GoldenModel;
using testing::RandomTokens;
using testing::TokenRequest;

EngineOptions OnGpu() {
  EngineOptions options;
  options.backend = Backend::kCuda;
  options.batch_invariant = true;
  options.scheduler.max_batch_tokens = 64;
  options.scheduler.max_running = 8;
  return options;
}

class CudaExpertsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = CreateCudaDevice(0, 0);
    if (!device.ok()) GTEST_SKIP() << "needs a GPU: " << device.status();
    device_ = *std::move(device);
  }

  ExpertMemory ExpertsOf(const std::string& model) {
    const ModelFiles files = *OpenModelFiles(model, {});
    return (*PlanModel(files, *device_, {}))->info().experts;
  }

  std::unique_ptr<Device> device_;
};

TEST_F(CudaExpertsTest, TokensOfAllOnTheDevice) {
  std::vector<RequestOptions> requests;
  for (uint32_t i = 0; i < 10; ++i) {
    requests.push_back(
        TokenRequest(RandomTokens(i, 3 + i * 31 % 90), 20 + i * 7 % 40));
    requests.back().sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
    requests.back().sampling.seed = i;
  }
  const auto random = [](const char* name) {
    return "random:" + GoldenModel(name) + "?dtype=bf16";
  };
  for (const std::string& path :
       {random("mixtral"), random("qwen3_moe"), random("gpt_oss"),
        random("deepseek_v3"), random("deepseek_v4"), random("qwen3_next"),
        random("longcat_flash"),
        "random:" + TestData() + "/shapes/qwen3-moe-1b?dtype=q4_k"}) {
    SCOPED_TRACE(path);
    const ExpertMemory experts = ExpertsOf(path);
    ASSERT_GT(experts.bytes, 0u);
    EngineHarness all(path, OnGpu());
    ASSERT_TRUE(all.ok());
    const auto want = all.RunTogether(requests);
    const uint64_t least =
        experts.slot_bytes * static_cast<uint64_t>(experts.least_slots);
    for (const uint64_t budget : {least, least + experts.slot_bytes}) {
      if (budget >= experts.bytes) continue;
      SCOPED_TRACE(budget);
      ModelOptions options;
      options.expert_device_bytes = budget;
      EngineHarness some(path, OnGpu(), options);
      ASSERT_TRUE(some.ok());
      const auto got = some.RunTogether(requests);
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(got[i].tokens, want[i].tokens) << i;
      }
      const auto alone = some.RunAlone(requests[4]);
      EXPECT_EQ(alone.tokens, want[4].tokens);
      EXPECT_EQ(some.Metrics().steps_ahead > 0, all.Metrics().steps_ahead > 0);
      // Those on the device are among its weights, the others are not.
      const auto weights = [](EngineHarness& harness) {
        return harness.Stats()
            .memory.by_class[static_cast<size_t>(MemoryClass::kWeights)];
      };
      EXPECT_LT(weights(some), weights(all));
      EXPECT_EQ(some.runner().loaded().info.experts.slots,
                static_cast<int>(budget / experts.slot_bytes));
    }
  }
}

TEST_F(CudaExpertsTest, TooFewBytesAreRefusedAndTheEngineGoesOn) {
  const std::string path = GoldenModel("qwen3_moe");
  const ExpertMemory experts = ExpertsOf(path);
  auto engine = Engine::Create(OnGpu());
  ASSERT_TRUE(engine.ok()) << engine.status();
  ModelOptions options;
  options.expert_device_bytes = experts.slot_bytes;
  EXPECT_EQ((*engine)->Load(path, options).status().code(),
            absl::StatusCode::kInvalidArgument);
  options.expert_device_bytes =
      experts.slot_bytes * static_cast<uint64_t>(experts.least_slots);
  EXPECT_TRUE((*engine)->Load(path, options).ok());
}

}  // namespace
}  // namespace inlay
