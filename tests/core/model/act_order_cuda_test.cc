// Act order in layers of experts on a GPU: near what a CPU makes of the same
// weights in float32, and the same bits with experts in host memory.
#include <gtest/gtest.h>

#include <string>

#include "tests/core/model/act_order_models.h"

namespace inlay {
namespace {

using ::inlay::testing::WithOrders;

// What a matrix reads, what it makes and, in some kernels, its elements are
// rounded to bf16, which moves logits by some hundredths of their deviation
// (rounded_models.h); what is not in order moves them by the whole.
constexpr double kRounded = 0.1;

// Of few tokens and many, and by the kernels of plain matrices.
TEST(ActOrderCuda, EveryKindOfExperts) {
  const auto gpu = CreateCudaDevice(0, 0);
  if (!gpu.ok()) GTEST_SKIP() << "needs a GPU: " << gpu.status();
  const auto cpu = Cpu();
  for (const char* name : {"mixtral", "qwen2_moe", "gpt_oss", "llama4_text",
                           "deepseek_v3", "longcat_flash", "nemotron_h",
                           "jetmoe", "deepseek_v4", "recurrent_gemma"}) {
    ModelFiles files = Open(name, "config.json");
    files.config = WithAllKeys(files.config);
    const auto spec = DescribeDecoder(files, *cpu);
    ASSERT_TRUE(spec.ok()) << spec.status();
    files.weights = RoutedByKind(Widened(*files.weights), *spec);
    const auto want = RunRounded(files, *cpu, "cpu_simd", kWholePrompt);
    ASSERT_TRUE(want.ok()) << want.status();
    const auto plain = files.weights;
    for (const GateOrders gates : {GateOrders::kOne, GateOrders::kApart}) {
      files.weights = WithOrders(*plain, IsOfExperts, gates);
      for (const int64_t chunk : {int64_t{1}, int64_t{3}, kWholePrompt}) {
        SCOPED_TRACE(::testing::Message()
                     << name << " gates " << static_cast<int>(gates)
                     << " chunk " << chunk);
        const auto got = RunRounded(files, **gpu, nullptr, chunk);
        ASSERT_TRUE(got.ok()) << got.status();
        EXPECT_LT(ErrorOf(*want, *got).mean, kRounded);
      }
    }
  }
}

// Chains read no experts in host memory and none in an order of their own.
TEST(ActOrderCuda, SameBitsWithFewExpertsOnTheDevice) {
  const auto gpu = CreateCudaDevice(0, 0);
  if (!gpu.ok()) GTEST_SKIP() << "needs a GPU: " << gpu.status();
  for (const GateOrders gates : {GateOrders::kOne, GateOrders::kApart}) {
    RoundedFiles files = DrawMixtral(kGptq, gates);
    ASSERT_NE(files.rounded.weights, nullptr);
    const auto run = [&](const ModelLoadOptions& options, int64_t chunk,
                         ExpertMemory* experts) {
      const auto model = LoadModel(files.rounded, **gpu, options);
      EXPECT_TRUE(model.ok()) << model.status();
      if (!model.ok()) return ModelHarness::Logits();
      *experts = (*model)->info().experts;
      return RunChunks(**model, **gpu, FamilyPrompt(), chunk);
    };
    for (const int64_t chunk : {kWholePrompt, int64_t{1}}) {
      ExpertMemory experts;
      ModelLoadOptions options;
      const auto want = run(options, chunk, &experts);
      options.expert_device_bytes =
          experts.slot_bytes * static_cast<uint64_t>(experts.least_slots);
      ASSERT_LT(options.expert_device_bytes, experts.bytes);
      const auto got = run(options, chunk, &experts);
      EXPECT_EQ(experts.slots, experts.least_slots);
      EXPECT_TRUE(got == want) << "gates " << static_cast<int>(gates);
    }
  }
}

// By the kernels for few tokens and for many, and without fusion.
TEST(ActOrderCuda, QuantisedExperts) {
  const auto gpu = CreateCudaDevice(0, 0);
  if (!gpu.ok()) GTEST_SKIP() << "needs a GPU: " << gpu.status();
  const auto cpu = Cpu();
  for (const Json& settings : {kGptq, kCompressed}) {
    for (const GateOrders gates : {GateOrders::kOne, GateOrders::kApart}) {
      const RoundedFiles files = DrawMixtral(settings, gates);
      ASSERT_NE(files.rounded.weights, nullptr);
      const auto want = RunRounded(files.wide, *cpu, "cpu_simd", kWholePrompt);
      ASSERT_TRUE(want.ok()) << want.status();
      std::vector<int32_t> prompt;
      for (int32_t i = 0; i < 40; ++i) prompt.push_back(i * 37 % 300);
      for (const bool fused : {true, false}) {
        ModelLoadOptions options;
        options.fused = fused;
        const auto model = LoadModel(files.rounded, **gpu, options);
        ASSERT_TRUE(model.ok()) << model.status();
        for (const int64_t chunk :
             {int64_t{1}, int64_t{2}, int64_t{12}, kWholePrompt}) {
          SCOPED_TRACE(::testing::Message()
                       << settings["quant_method"] << " gates "
                       << static_cast<int>(gates) << " fused " << fused
                       << " chunk " << chunk);
          const auto got = RunChunks(**model, **gpu, prompt, chunk);
          EXPECT_LT(ErrorOf(*want, got).mean, kRounded);
        }
      }
    }
  }
}

}  // namespace
}  // namespace inlay
