// Caches of bytes in whole models on a GPU: prompts long enough for tiles over
// the unpacked cache, in chunks and windows, against the CPU with the same
// cache and against the GPU's items.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

constexpr int kTokens = 230;
constexpr int64_t kWhole = 1 << 20;

// Queries of four heads on two, of a size that tiles serve.
ModelFiles Files(bool window) {
  ModelFiles files;
  auto config = ParseJson(std::string(R"({
      "architectures": ["MistralForCausalLM"], "model_type": "mistral",
      "vocab_size": 300, "hidden_size": 256, "intermediate_size": 512,
      "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "max_position_embeddings": 512,
      "rms_norm_eps": 1e-5, "sliding_window": )") +
                              (window ? "70}" : "null}"),
                          "config.json");
  EXPECT_TRUE(config.ok()) << config.status();
  if (config.ok()) files.config = *config;
  files.random = RandomWeights{DType::kBF16, 5};
  return files;
}

class KvFormatCudaTest : public testing::Test {
 protected:
  void SetUp() override {
    auto gpu = CreateCudaDevice(0, 0);
    if (!gpu.ok()) GTEST_SKIP() << "needs a GPU";
    gpu_ = *std::move(gpu);
  }

  static std::vector<float> Logits(Device& device, bool window, DType kv,
                                   bool batch_invariant, int64_t chunk) {
    std::vector<int32_t> prompt;
    for (int32_t i = 0; i < kTokens; ++i) prompt.push_back(i * 37 % 300);
    ModelLoadOptions options;
    options.kv_dtype = kv;
    options.batch_invariant = batch_invariant;
    auto model = LoadModel(Files(window), device, options);
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return {};
    ModelHarness harness(**model, device, 2 * kTokens);
    auto rows = harness.Run(harness.AddSequence(kTokens), prompt, chunk);
    EXPECT_TRUE(rows.ok()) << rows.status();
    std::vector<float> all;
    if (!rows.ok()) return all;
    for (const auto& row : *rows) all.insert(all.end(), row.begin(), row.end());
    return all;
  }

  // The root mean square of the difference, of the deviation of `want`.
  static double Error(const std::vector<float>& want,
                      const std::vector<float>& got) {
    EXPECT_EQ(want.size(), got.size());
    if (want.empty() || want.size() != got.size()) return INFINITY;
    double sum = 0, squares = 0, differences = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      sum += want[i];
      squares += double{want[i]} * want[i];
      differences += std::pow(double{want[i]} - got[i], 2);
    }
    const auto n = static_cast<double>(want.size());
    return std::sqrt(differences / (squares - sum * sum / n));
  }

  std::unique_ptr<Device> gpu_;
  std::unique_ptr<Device> cpu_ = *CreateCpuDevice(2, 0);
};

// What layers hand on is rounded to bf16, some ten times a layer, by at most
// 2^-8 and by 2^-8 / sqrt(3) in the root mean square: sqrt(20) times that in
// two layers, and as much again for what norms and the softmax make of it.
// Unpacked codes are rounded like that once more. Against the CPU, codes
// themselves differ where an element is near the middle of two: as much again.
TEST_F(KvFormatCudaTest, LongPromptsAsOnTheCpu) {
  constexpr double kRounded = 2 * 4.48 * 0x1p-8 / 1.73;
  for (const DType kv : {DType::kI8, DType::kF8E4M3, DType::kBF16}) {
    for (const bool window : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << DTypeName(kv) << (window ? " window" : ""));
      const std::vector<float> want = Logits(*cpu_, window, kv, false, kWhole);
      const std::vector<float> items = Logits(*gpu_, window, kv, true, kWhole);
      EXPECT_LT(Error(want, items), 2 * kRounded);
      for (const int64_t chunk : {kWhole, int64_t{120}, int64_t{30}}) {
        const std::vector<float> got = Logits(*gpu_, window, kv, false, chunk);
        EXPECT_LT(Error(want, got), 2 * kRounded) << "chunks of " << chunk;
        EXPECT_LT(Error(items, got), kRounded) << "chunks of " << chunk;
        std::printf("%-8s%s chunks of %7d: %.2e of the CPU, %.2e of items\n",
                    std::string(DTypeName(kv)).c_str(), window ? " window" : "",
                    static_cast<int>(chunk), Error(want, got),
                    Error(items, got));
      }
    }
  }
}

}  // namespace
}  // namespace inlay
