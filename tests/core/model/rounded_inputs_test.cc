// Checkpoints of 8-bit activations on the CPU, with what layers read rounded by
// the op `rounding` as the checkpoint says, against the reference's logits:
// that codes and scales are what the method means. Kernels of a GPU round with
// the same bits (rounding_test).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "core/formats/safetensors_source.h"
#include "tests/core/model/golden_models.h"
#include "tests/core/model/rounds_inputs.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

std::string CheckpointFolder(const std::string& checkpoint) {
  return TestData() + "/quantized/" + checkpoint;
}

class RoundedInputsTest : public ::testing::Test {
 protected:
  // The last token's logits of each case; null: inputs stay as they are.
  ModelHarness::Logits Run(const ModelFiles& files,
                           const std::vector<GoldenCase>& cases,
                           RoundsInputs* inputs) {
    ModelLoadOptions options;
    options.fused = false;
    options.input_observer = inputs;
    options.forced_kernels["gemm"] = "cpu_simd";
    const auto model = LoadModel(files, *device_, options);
    EXPECT_TRUE(model.ok()) << model.status();
    ModelHarness::Logits last;
    if (!model.ok()) return last;
    for (const GoldenCase& golden : cases) {
      const auto length = static_cast<int64_t>(golden.input_ids.size());
      ModelHarness harness(**model, *device_, length);
      const auto logits =
          harness.Run(harness.AddSequence(length), golden.input_ids, length);
      EXPECT_TRUE(logits.ok()) << logits.status();
      last.push_back(logits.ok() ? logits->back() : std::vector<float>());
    }
    return last;
  }

  // The largest difference over the logits' deviation.
  static double Apart(const GoldenCase& golden, const std::vector<float>& got,
                      const std::vector<float>& want) {
    EXPECT_EQ(got.size(), want.size());
    if (got.size() != want.size()) return INFINITY;
    double worst = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double off = std::fabs(double{got[i]} - want[i]);
      worst = std::isnan(off) ? INFINITY : std::max(worst, off);
    }
    return worst / golden.logit_std;
  }

  static double Distance(const std::vector<float>& a,
                         const std::vector<float>& b) {
    double squares = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      squares += std::pow(double{a[i]} - b[i], 2);
    }
    return std::sqrt(squares);
  }

  std::unique_ptr<Device> device_ = *CreateCpuDevice(2, 0);
  std::unique_ptr<Stream> stream_ = *device_->CreateStream();
};

// Where no input of the reference's lies so near the middle between two codes
// that its own noise moves it, logits are those of float32; elsewhere a few
// codes differ, each as far as the noise.
void ExpectAsNoisy(const GoldenCase& golden, double apart) {
  EXPECT_LT(apart, golden.rounded_noise < kTolerance
                       ? kTolerance
                       : 3 * golden.rounded_noise);
}

TEST_F(RoundedInputsTest, ByTokenAsTheReference) {
  const struct {
    const char* checkpoint;
    RowRounding rounding;
    InputCodes codes;
  } kCases[] = {
      {"ct_int8_w8a8", RowRounding::kInt8Rows, InputCodes::kInt8},
      {"ct_fp8_channel", RowRounding::kFp8Rows, InputCodes::kFp8},
      {"fp8_block", RowRounding::kFp8Groups, InputCodes::kFp8},
  };
  for (const auto& [checkpoint, rounding, codes] : kCases) {
    SCOPED_TRACE(checkpoint);
    const auto files = OpenModelFiles(CheckpointFolder(checkpoint), {});
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_EQ(
        files->weights->Find("model.layers.0.mlp.up_proj.weight")->input_codes,
        codes);
    const auto cases = ReadGolden(CheckpointFolder(checkpoint));
    RoundsInputs inputs(rounding, *stream_);
    const auto logits = Run(*files, cases, &inputs);
    ASSERT_EQ(logits.size(), cases.size());
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(cases[i].name);
      ASSERT_FALSE(cases[i].rounded_logits.empty());
      const double apart = Apart(cases[i], logits[i], cases[i].rounded_logits);
      ExpectAsNoisy(cases[i], apart);
      // Far from those of inputs that are kept.
      EXPECT_GT(Apart(cases[i], logits[i], cases[i].logits.back()), 0.02);
      std::printf("%-15s %-6s max error / logit_std %.2e\n", checkpoint,
                  cases[i].name.c_str(), apart);
    }
  }
}

// A checkpoint's own scales of inputs give way to each token's: e4m3 has steps
// of 1/16 to 1/8 whatever the scale, and a token's own neither cuts values off
// nor leaves them to the few codes near 0, so inputs move less. The two
// roundings are as good as independent, and so are what they do to the logits:
// these are as far apart as both are from those of inputs that are kept.
TEST_F(RoundedInputsTest, StaticScalesGiveWayToTheTokens) {
  const std::string folder = CheckpointFolder("ct_fp8_tensor");
  const auto files = OpenModelFiles(folder, {});
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(
      files->weights->Find("model.layers.0.mlp.up_proj.weight")->input_codes,
      InputCodes::kFp8);
  const auto raw = OpenSafetensors(folder, WeightAccess::kMap);
  ASSERT_TRUE(raw.ok()) << raw.status();
  std::map<std::string, float> scales;
  const std::string suffix = ".input_scale";
  for (const WeightInfo& info : (*raw)->weights()) {
    if (!info.name.ends_with(suffix)) continue;
    float& scale =
        scales[info.name.substr(0, info.name.size() - suffix.size())];
    ASSERT_EQ(info.bytes, sizeof(scale));
    ASSERT_TRUE((*raw)
                    ->Read(info, 0,
                           absl::MakeSpan(reinterpret_cast<std::byte*>(&scale),
                                          sizeof(scale)))
                    .ok());
  }
  ASSERT_EQ(scales.size(), 7u);
  const auto cases = ReadGolden(folder);
  RoundsInputs by_scale(RowRounding::kFp8Rows, *stream_);
  by_scale.UseScales(scales);
  RoundsInputs by_token(RowRounding::kFp8Rows, *stream_);
  const auto asked = Run(*files, cases, &by_scale);
  const auto given = Run(*files, cases, &by_token);
  ASSERT_EQ(asked.size(), cases.size());
  ASSERT_EQ(given.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i].name);
    const std::vector<float>& plain = cases[i].logits.back();
    const std::vector<float>& wanted = cases[i].rounded_logits;
    ExpectAsNoisy(cases[i], Apart(cases[i], asked[i], wanted));
    const double apart = Distance(given[i], wanted);
    const double both =
        std::hypot(Distance(given[i], plain), Distance(wanted, plain));
    // Some dozens of values that count: a few tenths of correlation.
    EXPECT_LT(apart, 1.5 * both);
    EXPECT_GT(apart, both / 1.5);
    std::printf("ct_fp8_tensor   %-6s logits are apart by %.2f of both moves\n",
                cases[i].name.c_str(), apart / both);
  }
  EXPECT_LT(by_token.moved(), by_scale.moved());
  std::printf("inputs are moved by %.4f, by static scales %.4f\n",
              by_token.moved(), by_scale.moved());
}

}  // namespace
}  // namespace inlay
