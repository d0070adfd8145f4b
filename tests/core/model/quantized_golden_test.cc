// Quantised checkpoints against the reference's outputs, float32 arithmetic on
// the weights they stand for: with the rows that compute so, whatever the CPU's
// default is (rows for quantised weights round activations as well).
#include <algorithm>
#include <cstdio>
#include <utility>

#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

constexpr const char* kQuantized[] = {"awq_int4", "ct_int8_w8a8", "fp8_block",
                                      "gptq_int4_actorder"};

std::string QuantizedDirectory(const std::string& model) {
  return std::string(INLAY_TEST_DATA "/quantized/") + model;
}

class QuantizedGolden : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Model> Load(WeightAccess access, const std::string& gemm) {
    ModelFilesOptions options;
    options.access = access;
    const auto files = OpenModelFiles(QuantizedDirectory(GetParam()), options);
    EXPECT_TRUE(files.ok()) << files.status();
    if (!files.ok()) return nullptr;
    ModelLoadOptions load;
    load.forced_kernels["gemm"] = gemm;
    auto model = LoadModel(*files, *device_, load);
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? *std::move(model) : nullptr;
  }

  std::unique_ptr<Device> device_ = *CreateCpuDevice(2, 0);
};

TEST_P(QuantizedGolden, WholeChunkedAndGreedy) {
  const auto cases = ReadGolden(QuantizedDirectory(GetParam()));
  ASSERT_FALSE(cases.empty());
  double worst = 0;
  for (const auto& [access, gemm] : {std::pair{WeightAccess::kMap, "cpu_simd"},
                                     {WeightAccess::kRead, "cpu_scalar"}}) {
    const auto model = Load(access, gemm);
    ASSERT_NE(model, nullptr);
    for (const GoldenCase& golden : cases) {
      SCOPED_TRACE(golden.name + " " + gemm);
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
      const auto greedy =
          harness.Greedy(sequence, logits->back(), kGreedySteps);
      ASSERT_TRUE(greedy.ok()) << greedy.status();
      EXPECT_EQ(*greedy, golden.greedy);
    }
  }
  std::printf("%-18s max error / logit_std %.2e\n", GetParam(), worst);
}

INSTANTIATE_TEST_SUITE_P(Models, QuantizedGolden, testing::ValuesIn(kQuantized),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace inlay
