// Mixtures whose checkpoint rounds the inputs of its experts to 8 bits, on a
// GPU, against the CPU's float32 arithmetic with inputs rounded alike.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/core/model/golden_models.h"
#include "tests/core/model/rounds_inputs.h"

namespace inlay {
namespace {

constexpr int64_t kWhole = 1 << 20;

// Every token goes to all experts: their choice would change with roundings.
constexpr char kConfig[] = R"({
      "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe",
      "vocab_size": 300, "hidden_size": 256, "intermediate_size": 256,
      "num_hidden_layers": 1, "num_attention_heads": 4,
      "num_key_value_heads": 2, "max_position_embeddings": 128,
      "num_experts": 4, "num_experts_per_tok": 4, "norm_topk_prob": true,
      "moe_intermediate_size": 128, "shared_expert_intermediate_size": 128,
      "mlp_only_layers": [], "rms_norm_eps": 1e-5,
      "tie_word_embeddings": false})";

struct Case {
  const char* name;
  DType dtype;
  bool groups;  // a scale for each 128 columns, otherwise one a row
  RowRounding rounding;
};
constexpr Case kCases[] = {
    {"e4m3, groups", DType::kF8_G128, true, RowRounding::kFp8Groups},
    {"e4m3, rows", DType::kF8_G128, false, RowRounding::kFp8Rows},
    {"int8", DType::kI8_G128, false, RowRounding::kInt8Rows},
};

// Values about 1 / sqrt(columns).
std::vector<std::byte> ExpertRows(const Case& how, int64_t rows, int64_t cols,
                                  std::mt19937& rng) {
  const auto bytes = static_cast<size_t>(GetFormatInfo(how.dtype).block_bytes);
  const bool whole = how.dtype == DType::kI8_G128;
  const float size = 1.0f / std::sqrt(static_cast<float>(cols));
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> around(0.7f, 1.4f);
  std::vector<std::byte> out(static_cast<size_t>(rows * cols / 128) * bytes);
  std::byte* block = out.data();
  for (int64_t r = 0; r < rows; ++r) {
    float scale = 0;
    for (int64_t b = 0; b < cols / 128; ++b, block += bytes) {
      if (b == 0 || how.groups) scale = around(rng);
      const float stored = scale * size / (whole ? 32.0f : 100.0f);
      std::memcpy(block, &stored, sizeof(stored));
      for (int64_t i = 0; i < 128; ++i) {
        const float value = normal(rng);
        block[static_cast<int64_t>(bytes) - 128 + i] =
            whole ? static_cast<std::byte>(static_cast<int8_t>(
                        std::fmax(-127.0f, std::fmin(127.0f, 32.0f * value))))
                  : std::byte{F32ToF8E4M3(100.0f * value)};
      }
    }
  }
  return out;
}

// Experts in 8 bits with rounded inputs, all else in f16.
ModelFiles DrawModel(const Case& how) {
  ModelFiles files;
  files.config = *ParseJson(kConfig, "config.json");
  ModelFiles drawn = files;
  drawn.random = RandomWeights{DType::kF32, 7};
  const auto device = *CreateCpuDevice(1, 0);
  const auto planned = PlanWeights(drawn, *device);
  EXPECT_TRUE(planned.ok()) << planned.status();
  auto weights = std::make_shared<MemoryWeights>(true);
  std::mt19937 rng(5);
  for (const PlannedWeight& weight : *planned) {
    int64_t size = 1;
    for (const int64_t dim : weight.shape) size *= dim;
    WeightInfo info;
    info.name = weight.name;
    info.shape = weight.shape;
    if (weight.name.find(".experts.") != std::string::npos) {
      info.dtype = how.dtype;
      info.input_codes = how.rounding == RowRounding::kInt8Rows
                             ? InputCodes::kInt8
                             : InputCodes::kFp8;
      const auto rows =
          ExpertRows(how, size / weight.shape.back(), weight.shape.back(), rng);
      weights->Add(std::move(info), rows.data());
      continue;
    }
    const float deviation =
        weight.vector.has_value()
            ? 0.0f
            : 1.0f / std::sqrt(static_cast<float>(weight.shape.back()));
    const float mean =
        weight.vector.value_or(VectorKind::kBias) == VectorKind::kScale ? 1.0f
                                                                        : 0.0f;
    std::normal_distribution<float> normal(mean, 1.0f);
    std::vector<uint16_t> values;
    for (int64_t i = 0; i < size; ++i) {
      values.push_back(F32ToF16(mean + deviation * (normal(rng) - mean)));
    }
    info.dtype = DType::kF16;
    weights->Add(std::move(info), values.data());
  }
  files.weights = weights;
  return files;
}

std::vector<int32_t> Prompt() {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 90; ++i) prompt.push_back(i * 37 % 300);
  return prompt;
}

ModelHarness::Logits RunOn(const ModelFiles& files, Device& device,
                           const ModelLoadOptions& options, int64_t chunk) {
  const auto model = LoadModel(files, device, options);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  const auto prompt = Prompt();
  const auto length = static_cast<int64_t>(prompt.size());
  ModelHarness harness(**model, device, length);
  auto logits = harness.Run(harness.AddSequence(length), prompt, chunk);
  EXPECT_TRUE(logits.ok()) << logits.status();
  return logits.ok() ? *std::move(logits) : ModelHarness::Logits();
}

// Null: inputs stay as they are.
ModelHarness::Logits RunOnCpu(const ModelFiles& files, RoundsInputs* inputs) {
  const auto device = *CreateCpuDevice(2, 0);
  ModelLoadOptions options;
  options.fused = false;
  options.input_observer = inputs;
  options.forced_kernels["gemm"] = "cpu_simd";
  options.forced_kernels["expert_linear"] = "cpu_simd";
  return RunOn(files, *device, options, kWhole);
}

double Distance(const ModelHarness::Logits& a, const ModelHarness::Logits& b) {
  EXPECT_EQ(a.size(), b.size());
  double squares = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) {
      squares += std::pow(double{a[i][j]} - b[i][j], 2);
    }
  }
  return std::sqrt(squares);
}

// Of the differences a - b and c - d.
double Product(const ModelHarness::Logits& a, const ModelHarness::Logits& b,
               const ModelHarness::Logits& c, const ModelHarness::Logits& d) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) {
      sum += (double{a[i][j]} - b[i][j]) * (double{c[i][j]} - d[i][j]);
    }
  }
  return sum;
}

class RoundedExpertsCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    auto gpu = CreateCudaDevice(0, 0);
    if (!gpu.ok() || (*gpu)->info().sm != 90) {
      GTEST_SKIP() << "needs a GPU of compute capability 9.0";
    }
    gpu_ = *std::move(gpu);
  }
  std::unique_ptr<Device> gpu_;
};

// What layers hand on is f16 on the GPU, so that a few inputs near the middle
// between two codes round otherwise than on the CPU; gated activations then
// differ by more than f16 does, and more of them round otherwise. Still most of
// what rounding does to logits is the same on both: of roundings that are
// independent nothing would be.
TEST_F(RoundedExpertsCuda, AsTheCheckpointSays) {
  for (const Case& how : kCases) {
    SCOPED_TRACE(how.name);
    const ModelFiles files = DrawModel(how);
    const auto cpu = *CreateCpuDevice(1, 0);
    const auto stream = *cpu->CreateStream();
    RoundsInputs inputs(how.rounding, *stream);
    inputs.UseExperts();
    const auto plain = RunOnCpu(files, nullptr);
    const auto rounded = RunOnCpu(files, &inputs);
    const double asked = Distance(rounded, plain);
    ASSERT_GT(asked, 0);
    ModelLoadOptions options;
    const auto got = RunOn(files, *gpu_, options, kWhole);
    const auto few = RunOn(files, *gpu_, options, 5);
    options.fused = false;
    const auto apart = RunOn(files, *gpu_, options, kWhole);
    options.fused = true;
    options.round_inputs = false;
    const auto kept = RunOn(files, *gpu_, options, kWhole);
    const auto few_kept = RunOn(files, *gpu_, options, 5);
    EXPECT_TRUE(few == few_kept);
    EXPECT_LT(Distance(kept, plain), 0.25 * asked);
    for (const auto& logits : {got, apart}) {
      const double moved = Distance(logits, kept);
      EXPECT_GT(moved, 0.5 * asked);
      EXPECT_LT(moved, 2.0 * asked);
      const double alike =
          Product(logits, kept, rounded, plain) / (moved * asked);
      EXPECT_GT(alike, 0.5);
      std::printf(
          "%-12s inputs move by %.4f, logits by %.2f of what they do "
          "on the CPU, %.2f of it alike\n",
          how.name, inputs.moved(), moved / asked, alike);
    }
  }
}

// Experts in host memory say as much of their scales, so that inputs are
// rounded alike.
TEST_F(RoundedExpertsCuda, SameBitsWithFewExpertsOnTheDevice) {
  for (const Case& how : kCases) {
    SCOPED_TRACE(how.name);
    ModelFiles files = DrawModel(how);
    files.config["num_experts_per_tok"] = 2;
    ModelLoadOptions options;
    options.forced_kernels["linear_chain"] = "apart";
    const auto want = RunOn(files, *gpu_, options, kWhole);
    const auto planned = PlanModel(files, *gpu_, options);
    ASSERT_TRUE(planned.ok()) << planned.status();
    const ExpertMemory& experts = (*planned)->info().experts;
    options.expert_device_bytes = 2 * experts.slot_bytes;
    const auto got = RunOn(files, *gpu_, options, kWhole);
    EXPECT_TRUE(got == want);
    options.round_inputs = false;
    EXPECT_FALSE(RunOn(files, *gpu_, options, kWhole) == want);
  }
}

}  // namespace
}  // namespace inlay
