// Models with experts in host memory on a GPU: the bits of those with all on
// the device, whatever is kept there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "kernels/quant/quant.h"
#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

using testing::HasSubstr;

constexpr int64_t kWhole = 1 << 20;

// Chains read no experts in host memory, and round after other steps.
ModelLoadOptions WithBytes(uint64_t bytes) {
  ModelLoadOptions options;
  options.expert_device_bytes = bytes;
  options.forced_kernels["linear_chain"] = "apart";
  return options;
}

// The budgets that matter: the least, one more expert, all but one byte.
std::vector<uint64_t> Budgets(const ExpertMemory& experts) {
  const uint64_t least =
      experts.slot_bytes * static_cast<uint64_t>(experts.least_slots);
  std::vector<uint64_t> budgets;
  for (const uint64_t bytes :
       {least, least + experts.slot_bytes, experts.bytes - 1}) {
    if (bytes >= least && bytes < experts.bytes) budgets.push_back(bytes);
  }
  return budgets;
}

class ExpertMemoryCuda : public GoldenModel {
 protected:
  std::unique_ptr<Device> MakeDevice() override {
    auto device = CreateCudaDevice(0, 0);
    return device.ok() ? *std::move(device) : nullptr;
  }
  ModelFiles Files(const std::string& config) override {
    ModelFiles files = Open(GetParam(), config);
    if (widen_) files.weights = Widened(*files.weights);
    return files;
  }

  // Logits of the last case's prompt in chunks, then of a greedy continuation.
  std::vector<ModelHarness::Logits> RunAll(const Model& model) {
    const GoldenCase& golden = cases_.back();
    std::vector<ModelHarness::Logits> all;
    for (const int64_t chunk : {kWhole, int64_t{5}, int64_t{1}}) {
      ModelHarness harness(model, *device_, FinalLength(golden));
      const int sequence = harness.AddSequence(FinalLength(golden));
      auto logits = harness.Run(sequence, golden.input_ids, chunk);
      EXPECT_TRUE(logits.ok()) << logits.status();
      all.push_back(logits.ok() ? *std::move(logits) : ModelHarness::Logits());
    }
    return all;
  }

  bool widen_ = false;
};

TEST_P(ExpertMemoryCuda, SameBitsWithFewExpertsOnTheDevice) {
  int compared = 0;
  for (const bool widen : {false, true}) {
    widen_ = widen;
    const auto all = Load(WithBytes(0));
    ASSERT_NE(all, nullptr);
    const ExpertMemory experts = all->info().experts;
    ASSERT_GT(experts.bytes, 0u);
    EXPECT_EQ(experts.slots, 0);
    EXPECT_EQ(experts.device_bytes, experts.bytes);
    const auto want = RunAll(*all);
    for (const uint64_t budget : Budgets(experts)) {
      SCOPED_TRACE(testing::Message() << "widened " << widen << " budget "
                                      << budget << " of " << experts.bytes);
      const auto model = Load(WithBytes(budget));
      ASSERT_NE(model, nullptr);
      const ModelInfo& info = model->info();
      EXPECT_EQ(info.experts.slots,
                static_cast<int>(budget / experts.slot_bytes));
      EXPECT_LE(info.experts.device_bytes, budget);
      EXPECT_GE(info.experts.host_bytes, experts.bytes);
      EXPECT_EQ(info.weight_bytes, all->info().weight_bytes);
      EXPECT_EQ(info.num_parameters, all->info().num_parameters);
      const auto got = RunAll(*model);
      EXPECT_TRUE(got == want);
      const auto stream = *device_->CreateStream();
      const auto counts = model->ReadExpertCounts(*stream);
      ASSERT_TRUE(counts.ok()) << counts.status();
      EXPECT_GT(counts->steps, 0);
      EXPECT_GT(counts->fetches, 0);
      std::printf(
          "%-18s %2d slots: %d hits, %d fetches, %d direct\n", GetParam(),
          info.experts.slots, static_cast<int>(counts->hits),
          static_cast<int>(counts->fetches), static_cast<int>(counts->direct));
      ++compared;
    }
  }
  EXPECT_GT(compared, 0);
}

TEST_P(ExpertMemoryCuda, TooFewBytesNameTheLeast) {
  const auto all = Load({});
  ASSERT_NE(all, nullptr);
  const ExpertMemory experts = all->info().experts;
  const uint64_t least =
      experts.slot_bytes * static_cast<uint64_t>(experts.least_slots);
  if (least >= experts.bytes) GTEST_SKIP() << "all go to all";
  for (const uint64_t bytes : {uint64_t{1}, least - 1}) {
    const auto model =
        LoadModel(Files("config.json"), *device_, WithBytes(bytes));
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(model.status().message()),
                HasSubstr("expert_device_bytes is " + std::to_string(bytes)));
    EXPECT_THAT(std::string(model.status().message()),
                HasSubstr("at least " + std::to_string(least)));
  }
  const auto plan = PlanModel(Files("config.json"), *device_, WithBytes(least));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->info().experts.slots, experts.least_slots);
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertMemoryCuda,
                         testing::ValuesIn(kMixtureNames),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

// Every format that experts come in: few slots an expert, and on Hopper the
// kernel for many.
TEST(ExpertMemoryFormatsCuda, EveryBlockFormat) {
  auto device = CreateCudaDevice(0, 0);
  if (!device.ok()) GTEST_SKIP() << "needs a GPU";
  ModelFiles files;
  files.config = *ParsePythonJson(R"({
      "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
      "vocab_size": 300, "hidden_size": 256, "intermediate_size": 512,
      "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 64,
      "num_key_value_heads": 2, "max_position_embeddings": 512,
      "num_experts": 7, "num_experts_per_tok": 2, "norm_topk_prob": true,
      "moe_intermediate_size": 256, "rms_norm_eps": 1e-5,
      "tie_word_embeddings": false})",
                                  "config.json");
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 200; ++i) prompt.push_back(i * 37 % 300);
  std::vector<DType> dtypes = {DType::kBF16, DType::kF16};
  for (const BlockCodec* codec : BlockCodecs()) dtypes.push_back(codec->dtype);
  for (const DType dtype : dtypes) {
    SCOPED_TRACE(DTypeName(dtype));
    files.random = RandomWeights{.dtype = dtype};
    std::vector<std::vector<ModelHarness::Logits>> both;
    uint64_t budget = 0;
    for (const bool some : {false, true}) {
      auto model = LoadModel(files, **device, WithBytes(some ? budget : 0));
      ASSERT_TRUE(model.ok()) << model.status();
      const ExpertMemory& experts = (*model)->info().experts;
      EXPECT_EQ(experts.slots, some ? 3 : 0);
      budget = 3 * experts.slot_bytes;
      std::vector<ModelHarness::Logits>& all = both.emplace_back();
      for (const int64_t chunk : {kWhole, int64_t{9}, int64_t{1}}) {
        ModelHarness harness(**model, **device, 200);
        auto logits = harness.Run(harness.AddSequence(200), prompt, chunk);
        ASSERT_TRUE(logits.ok()) << logits.status();
        all.push_back(*std::move(logits));
      }
    }
    EXPECT_TRUE(both[0] == both[1]);
  }
}

}  // namespace
}  // namespace inlay
