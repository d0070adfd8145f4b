// Act order in layers that are loaded otherwise than dense ones, on a CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/model/act_order_models.h"

namespace inlay {
namespace {

using ::inlay::testing::WithOrders;
using ::testing::HasSubstr;

// Logits of a prompt with experts by that row, null: by those that are chosen;
// of dense layers' rows in float32 the scalar one alone takes an order.
ModelHarness::Logits RunRow(const ModelFiles& files, Device& device,
                            const char* row, int64_t chunk) {
  ModelLoadOptions options;
  if (row != nullptr) {
    options.forced_kernels["gemm"] = "cpu_scalar";
    options.forced_kernels["expert_linear"] = row;
  }
  const auto model = LoadModel(files, device, options);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  return RunChunks(**model, device, FamilyPrompt(), chunk);
}

// Experts that are one matrix with their gates and such that are not, some of
// them without an order. Rows that are chosen round inputs to 8 bits: some
// hundredths of the logits' deviation, as quantized_golden_test.cc has it;
// inputs in another order move logits by the whole.
TEST(ActOrderTest, QuantisedExperts) {
  constexpr double kRounded = 0.1;
  const auto cpu = Cpu();
  for (const Json& settings : {kGptq, kCompressed}) {
    for (const GateOrders gates : {GateOrders::kOne, GateOrders::kApart}) {
      SCOPED_TRACE(::testing::Message() << settings["quant_method"] << " gates "
                                        << static_cast<int>(gates));
      const RoundedFiles files = DrawMixtral(settings, gates);
      ASSERT_NE(files.rounded.weights, nullptr);
      EXPECT_EQ(files.layers, 2 * (4 + 3 * 4) + 1);
      const auto want = RunRow(files.wide, *cpu, "cpu_simd", kWholePrompt);
      for (const char* row : {"cpu_scalar", "cpu_simd"}) {
        const auto got = RunRow(files.rounded, *cpu, row, kWholePrompt);
        EXPECT_LT(ErrorOf(want, got).worst, kTolerance) << row;
      }
      const auto chosen = RunRow(files.rounded, *cpu, nullptr, kWholePrompt);
      EXPECT_LT(ErrorOf(want, chosen).mean, kRounded);
      EXPECT_TRUE(RunRow(files.rounded, *cpu, nullptr, 1) == chosen);
    }
  }
}

// Sums in another order, and nothing else.
TEST(ActOrderTest, EveryKindOfExperts) {
  for (const char* name : {"mixtral", "qwen2_moe", "gpt_oss", "llama4_text",
                           "deepseek_v3", "longcat_flash", "nemotron_h",
                           "jetmoe", "deepseek_v4", "recurrent_gemma"}) {
    SCOPED_TRACE(name);
    const auto cpu = Cpu();
    ModelFiles files = Open(name, "config.json");
    const auto want = RunRounded(files, *cpu, "cpu_simd", kWholePrompt);
    ASSERT_TRUE(want.ok()) << want.status();
    const auto plain = files.weights;
    for (const GateOrders gates : {GateOrders::kOne, GateOrders::kApart}) {
      files.weights = WithOrders(*plain, IsOfExperts, gates);
      ASSERT_GT(files.weights->weights().size(), plain->weights().size());
      for (const int64_t chunk : {kWholePrompt, int64_t{1}}) {
        const auto got = RunRounded(files, *cpu, "cpu_simd", chunk);
        ASSERT_TRUE(got.ok()) << got.status();
        EXPECT_LT(ErrorOf(*want, *got).worst, kTolerance)
            << "gates " << static_cast<int>(gates) << " chunk " << chunk;
      }
    }
  }
}

// GPT-2's matrices are inputs by outputs; quantised, they are not.
TEST(ActOrderTest, LayersThatAreTransposedOtherwise) {
  const auto cpu = Cpu();
  ModelFiles files = Open("gpt2", "config.json");
  const auto want = RunRow(files, *cpu, "cpu_simd", kWholePrompt);
  auto turned = std::make_shared<MemoryWeights>(true);
  const auto is_turned = [](const std::string& name) {
    return name.find(".h.") != name.npos;
  };
  const auto wide = Widened(*files.weights);
  for (WeightInfo info : wide->weights()) {
    const auto* values = reinterpret_cast<const float*>(wide->Mapped(info));
    if (info.shape.size() != 2 || !is_turned(info.name)) {
      turned->Add(info, values);
      continue;
    }
    const int64_t k = info.shape[0], n = info.shape[1];
    std::vector<float> rows;
    for (int64_t o = 0; o < n; ++o) {
      for (int64_t i = 0; i < k; ++i) rows.push_back(values[i * n + o]);
    }
    info.shape = {n, k};
    info.rows_are_outputs = true;
    turned->Add(info, rows.data());
  }
  files.weights = WithOrders(*turned, is_turned);
  const auto got = RunRow(files, *cpu, "cpu_simd", kWholePrompt);
  EXPECT_LT(ErrorOf(want, got).worst, kTolerance);
}

TEST(ActOrderTest, WhatIsNoInputOfALayerIsRefused) {
  const auto cpu = Cpu();
  for (const auto& [model, ending] :
       {std::pair{"mixtral", "model.embed_tokens.weight"},
        {"bert", "embeddings.position_embeddings.weight"},
        {"gemma3n_text", "model.embed_tokens_per_layer.weight"}}) {
    const std::string tensor = ending;  // for the lambda
    SCOPED_TRACE(tensor);
    ModelFiles files = Open(model, "config.json");
    files.weights = WithOrders(*files.weights, [&](const std::string& name) {
      return name.ends_with(tensor);
    });
    for (const bool plans : {true, false}) {
      const absl::Status status = plans ? PlanModel(files, *cpu, {}).status()
                                        : LoadModel(files, *cpu, {}).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(tensor));
      EXPECT_THAT(std::string(status.message()), HasSubstr("act order"));
    }
  }
}

}  // namespace
}  // namespace inlay
