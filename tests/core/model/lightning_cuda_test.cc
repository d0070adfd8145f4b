// Lightning and plain linear attention on CUDA with heads as wide as published
// models have them: prompts go by chunks, which need a workspace.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

class LightningCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = CreateCudaDevice(0, 0);
    if (!device.ok()) GTEST_SKIP() << "needs a GPU: " << device.status();
    device_ = *std::move(device);
    std::mt19937 random(7);
    for (int i = 0; i < 150; ++i) {
      tokens_.push_back(static_cast<int32_t>(random() % 320));
    }
  }

  // MiniMax with one expert, so that rounding sends no token to another.
  static ModelFiles Lightning() {
    ModelFiles files = Open("minimax", "config.json");
    files.config["head_dim"] = 64;
    files.config["num_local_experts"] = 1;
    files.config["num_experts_per_tok"] = 1;
    return files;
  }
  // With elu(x) + 1 and the normaliser.
  static ModelFiles Linear() {
    ModelFiles files = Open("linear_attn", "config.json");
    files.config["num_heads"] = 2;  // of 64
    return files;
  }

  ModelHarness::Logits Run(ModelFiles files, bool batch_invariant,
                           int64_t chunk) {
    files.weights = nullptr;
    files.random = RandomWeights{};
    ModelLoadOptions options;
    options.batch_invariant = batch_invariant;
    const auto model = LoadModel(files, *device_, options);
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? RunChunks(**model, *device_, tokens_, chunk)
                      : ModelHarness::Logits();
  }

  std::unique_ptr<Device> device_;
  std::vector<int32_t> tokens_;
};

// A few roundings to bf16 a layer apart.
TEST_F(LightningCudaTest, PromptsByChunksAreNearTokensOneByOne) {
  for (const ModelFiles& files : {Lightning(), Linear()}) {
    const auto chunks = Run(files, false, 150);
    const auto tokens = Run(files, false, 1);
    ASSERT_EQ(chunks.size(), tokens.size());
    EXPECT_EQ(ShareWithin(chunks, tokens, 0.2), 1.0);
  }
}

TEST_F(LightningCudaTest, BatchInvariantEnginesGoTokenByToken) {
  for (const ModelFiles& files : {Lightning(), Linear()}) {
    const auto whole = Run(files, true, 150);
    ASSERT_EQ(whole.size(), tokens_.size());
    EXPECT_TRUE(Run(files, true, 70) == whole);
  }
}

}  // namespace
}  // namespace inlay
