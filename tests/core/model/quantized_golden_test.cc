// Quantised checkpoints against the reference's outputs, float32 arithmetic on
// the weights they stand for.
#include <algorithm>
#include <cstdio>

#include "tests/core/model/golden_models.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

constexpr const char* kQuantized[] = {
    "awq_int4",           "bnb_fp4",        "bnb_int8",      "bnb_nf4",
    "bnb_nf4_gpt2",       "ct_fp8_channel", "ct_fp8_tensor", "ct_int8_w8a8",
    "ct_w4a16",           "fp8_block",      "gpt_oss_mxfp4", "gptq_int4",
    "gptq_int4_actorder", "torchao_fp8",    "torchao_int4",  "torchao_int8"};

std::string QuantizedDirectory(const std::string& model) {
  return TestData() + "/quantized/" + model;
}

class QuantizedGolden : public ::testing::TestWithParam<const char*> {
 protected:
  // gemm: the row that is forced, or none.
  std::unique_ptr<Model> Load(WeightAccess access, const std::string& gemm) {
    ModelFilesOptions options;
    options.access = access;
    const auto files = OpenModelFiles(QuantizedDirectory(GetParam()), options);
    EXPECT_TRUE(files.ok()) << files.status();
    if (!files.ok()) return nullptr;
    ModelLoadOptions load;
    if (!gemm.empty()) {
      load.forced_kernels["gemm"] = gemm;
      load.forced_kernels["expert_linear"] = gemm;
    }
    auto model = LoadModel(*files, *device_, load);
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? *std::move(model) : nullptr;
  }

  std::unique_ptr<Device> device_ = *CreateCpuDevice(2, 0);
};

// The golden keeps activations in float32; so does the scalar row.
TEST_P(QuantizedGolden, WholeChunkedAndGreedy) {
  const auto cases = ReadGolden(QuantizedDirectory(GetParam()));
  ASSERT_FALSE(cases.empty());
  double worst = 0;
  const auto model = Load(WeightAccess::kMap, "cpu_scalar");
  ASSERT_NE(model, nullptr);
  for (const GoldenCase& golden : cases) {
    SCOPED_TRACE(golden.name);
    const auto length =
        static_cast<int64_t>(golden.input_ids.size()) + kGreedySteps;
    ModelHarness harness(*model, *device_, 2 * length);
    const int sequence = harness.AddSequence(length);
    LastToken observer;
    const auto logits =
        harness.Run(sequence, golden.input_ids, 1 << 20, &observer);
    ASSERT_TRUE(logits.ok()) << logits.status();
    if (!golden.layer_outputs.empty()) CheckLayers(golden, observer);
    const double error = GoldenError(golden, *logits);
    EXPECT_LT(error, kTolerance);
    worst = std::max(worst, error);
    const int chunked = harness.AddSequence(length);
    const auto pieces = harness.Run(chunked, golden.input_ids, 5);
    ASSERT_TRUE(pieces.ok()) << pieces.status();
    EXPECT_TRUE(*pieces == *logits);
    const auto greedy = harness.Greedy(sequence, logits->back(), kGreedySteps);
    ASSERT_TRUE(greedy.ok()) << greedy.status();
    EXPECT_EQ(*greedy, golden.greedy);
  }
  std::printf("%-18s max error / logit_std %.2e\n", GetParam(), worst);
}

// The weights are the same, read or mapped.
TEST_P(QuantizedGolden, ReadAsMapped) {
  const auto cases = ReadGolden(QuantizedDirectory(GetParam()));
  ASSERT_FALSE(cases.empty());
  ModelHarness::Logits all[2];
  for (const WeightAccess access : {WeightAccess::kMap, WeightAccess::kRead}) {
    const auto model = Load(access, "cpu_scalar");
    ASSERT_NE(model, nullptr);
    const auto tokens = absl::MakeConstSpan(cases.back().input_ids).first(5);
    ModelHarness harness(*model, *device_, 5);
    const auto logits = harness.Run(harness.AddSequence(5), tokens, 5);
    ASSERT_TRUE(logits.ok()) << logits.status();
    all[access == WeightAccess::kRead ? 1 : 0] = *logits;
  }
  EXPECT_TRUE(all[0] == all[1]);
}

// The rows that are chosen may round activations to 8 bits a block of 32: steps
// of at most 1/127 of a block's largest value, so errors of some 1/127 /
// sqrt(12) of it, a quarter of a per cent a product, which add up as noise over
// the layers: how many a model multiplies by is not derived. The goldens are
// 0.041 to 0.112 of the deviation away at worst, and nf4's, whose levels are
// rounded about as much, 0.147.
TEST_P(QuantizedGolden, ChosenRowsAreNear) {
  constexpr double kRounded = 0.15;
  const auto model = Load(WeightAccess::kMap, "");
  ASSERT_NE(model, nullptr);
  double worst = 0;
  for (const GoldenCase& golden : ReadGolden(QuantizedDirectory(GetParam()))) {
    SCOPED_TRACE(golden.name);
    const auto length = static_cast<int64_t>(golden.input_ids.size());
    ModelHarness harness(*model, *device_, 2 * length);
    const int whole = harness.AddSequence(length);
    const auto logits = harness.Run(whole, golden.input_ids, 1 << 20);
    ASSERT_TRUE(logits.ok()) << logits.status();
    worst = std::max(worst, GoldenError(golden, *logits));
    const int chunked = harness.AddSequence(length);
    const auto pieces = harness.Run(chunked, golden.input_ids, 5);
    ASSERT_TRUE(pieces.ok()) << pieces.status();
    EXPECT_TRUE(*pieces == *logits);
  }
  EXPECT_LT(worst, kRounded);
  std::printf("%-18s max error / logit_std %.2e\n", GetParam(), worst);
}

INSTANTIATE_TEST_SUITE_P(Models, QuantizedGolden,
                         ::testing::ValuesIn(kQuantized), [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace inlay
