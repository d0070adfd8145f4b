// ModelOpt's checkpoints in e4m3, alone and with NVFP4 beside it, against the
// same models whose weights are what these stand for, in float32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/formats/quantized_source.h"
#include "memory/status.h"
#include "tests/core/model/rounded_models.h"
#include "tests/support/nvfp4_tensors.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

constexpr const char* kAlgorithms[] = {"FP8", "FP8_PER_CHANNEL_PER_TOKEN",
                                       "FP8_PB_WO", "NVFP4"};

// Adds `values` [n, k] as a layer of FP8, by scales of rows x columns, and
// leaves what it stands for.
void AddFp8(MemoryWeights& weights, const std::string& layer,
            const std::string& algorithm, const std::vector<int64_t>& shape,
            std::vector<float>& values) {
  const int64_t n = shape[0], k = shape[1];
  const bool is_tensor = algorithm == "FP8";
  const bool is_blocks = algorithm == "FP8_PB_WO";
  const int64_t rows = is_tensor ? n : is_blocks ? 128 : 1;
  const int64_t columns = is_blocks ? 128 : k;
  const int64_t down = (n - 1) / rows + 1, across = (k - 1) / columns + 1;
  std::vector<float> scales(static_cast<size_t>(down * across), 0x1p-20f);
  const auto scale = [&](int64_t i) -> float& {
    return scales[static_cast<size_t>(i / k / rows * across + i % k / columns)];
  };
  for (int64_t i = 0; i < n * k; ++i) {
    const float value = std::fabs(values[static_cast<size_t>(i)]);
    scale(i) = std::max(scale(i), value / 448.0f);
  }
  std::vector<uint8_t> codes;
  for (int64_t i = 0; i < n * k; ++i) {
    float& value = values[static_cast<size_t>(i)];
    codes.push_back(F32ToF8E4M3(value / scale(i)));
    value = F8E4M3ToF32(codes.back()) * scale(i);
  }
  std::vector<int64_t> scale_shape = {n};
  if (is_tensor) scale_shape.clear();
  if (is_blocks) scale_shape = {down, 1, across, 1};
  weights.Add(layer + ".weight", DType::kF8E4M3, shape, codes.data());
  weights.Add(layer + ".weight_scale", DType::kF32, scale_shape, scales.data());
  const float input = 0.01f;
  if (is_tensor) weights.Add(layer + ".input_scale", DType::kF32, {}, &input);
}

// `algorithm`: of all matrices, or MIXED_PRECISION: they take turns.
absl::StatusOr<RoundedFiles> Rounded(const std::string& model,
                                     const std::string& algorithm) {
  RoundedFiles files;
  INLAY_ASSIGN_OR_RETURN(files.wide,
                         OpenModelFiles(TestData() + "/models/" + model, {}));
  Json& config = files.wide.config;
  // Every token goes to all experts: their choice is the goldens' matter.
  if (config.contains("num_experts_per_tok")) {
    config["num_experts_per_tok"] = config["num_local_experts"];
  }
  files.rounded = files.wide;
  const auto source = Widened(*files.wide.weights);
  auto rounded = std::make_shared<MemoryWeights>(true);
  auto wide = std::make_shared<MemoryWeights>(true);
  Json settings = {{"quant_method", "modelopt"}, {"quant_algo", algorithm}};
  const bool is_mixed = algorithm == "MIXED_PRECISION";
  for (const WeightInfo& info : source->weights()) {
    std::vector<float> values(info.bytes / sizeof(float));
    INLAY_RETURN_IF_ERROR(
        source->Read(info, 0,
                     absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()),
                                    info.bytes)));
    const std::string layer = info.name.substr(0, info.name.rfind('.'));
    if (info.shape.size() != 2 || info.shape[1] % 64 != 0 ||
        layer.ends_with("embed_tokens") || layer.ends_with(".gate")) {
      rounded->Add(info, values.data());
      wide->Add(info, values.data());
      continue;
    }
    // All experts have one format.
    std::string own = algorithm;
    if (is_mixed && layer.find(".experts.") != layer.npos) {
      own = "NVFP4";
    } else if (is_mixed) {
      own = kAlgorithms[files.layers++ % std::size(kAlgorithms)];
    }
    if (is_mixed) settings["quantized_layers"][layer]["quant_algo"] = own;
    if (own == "NVFP4") {
      const auto matrix = Nvfp4Matrix::Round(values, info.shape[1],
                                             Nvfp4Matrix::FactorOf(values));
      matrix.AddTo(*rounded, layer, true);
      values = matrix.Values();
    } else {
      AddFp8(*rounded, layer, own, info.shape, values);
    }
    wide->Add(info, values.data());
  }
  files.wide.weights = wide;
  INLAY_ASSIGN_OR_RETURN(files.rounded.weights,
                         OpenQuantized(settings, rounded));
  return files;
}

class ModelOptFp8Test : public ::testing::TestWithParam<const char*> {};

TEST_P(ModelOptFp8Test, RunsAsWhatItStandsFor) {
  for (const char* algorithm :
       {"FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "MIXED_PRECISION"}) {
    SCOPED_TRACE(algorithm);
    const auto files = Rounded(GetParam(), algorithm);
    ASSERT_TRUE(files.ok()) << files.status();
    ExpectRunsAsWide(std::string(GetParam()) + " " + algorithm, *files);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ModelOptFp8Test,
                         ::testing::Values("llama3", "mixtral"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace inlay
