// Sparse attention by content: when it is dense attention, which layers select,
// what the cache keeps, and configurations that make no sense. Goldens:
// golden_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/indexer/indexer.h"
#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

// The longest of a model's prompts.
std::vector<int32_t> LongPrompt(const char* model) {
  std::vector<int32_t> longest;
  for (const GoldenCase& golden : ReadGolden(Directory(model))) {
    if (golden.input_ids.size() > longest.size()) longest = golden.input_ids;
  }
  return longest;
}

// As long as all keys are selected, and no longer, the bits are those of
// DeepSeek-V3 with the same weights.
TEST(SparseAttentionTest, ASelectionOfEverythingIsDense) {
  const std::vector<int32_t> tokens = LongPrompt("deepseek_v32");
  ModelFiles dense = Open("deepseek_v32", "config.json");
  dense.config["architectures"] = {"DeepseekV3ForCausalLM"};
  const auto want = RunChunks(dense, {}, tokens, 1000);
  ASSERT_EQ(want.size(), tokens.size());
  for (const size_t top_k : {16, 64, 100000}) {
    ModelFiles files = Open("deepseek_v32", "config.json");
    files.config["index_topk"] = top_k;
    for (const int64_t chunk : {7, 1000}) {
      SCOPED_TRACE(::testing::Message() << top_k << " in chunks of " << chunk);
      const auto got = RunChunks(files, {}, tokens, chunk);
      ASSERT_EQ(got.size(), tokens.size());
      const size_t same = std::min(top_k, tokens.size());
      for (size_t i = 0; i < same; ++i) EXPECT_EQ(got[i], want[i]) << i;
      for (size_t i = same; i < got.size(); ++i)
        EXPECT_NE(got[i], want[i]) << i;
    }
  }
}

// However the choice of layers is spelled; another choice is another model.
TEST(SparseAttentionTest, WhichLayersSelect) {
  const std::vector<int32_t> tokens = LongPrompt("glm_moe_dsa");
  const ModelFiles files = Open("glm_moe_dsa", "config.json");
  const auto want = RunChunks(files, {}, tokens, 1000);
  ModelFiles by_numbers = files;
  by_numbers.config.erase("indexer_types");
  ModelFiles by_pattern = by_numbers;
  by_pattern.config["index_topk_freq"] = 7;
  ModelFiles by_list = by_pattern;
  by_pattern.config["index_topk_pattern"] = "FSF";
  by_list.config["index_topk_pattern"] = {"full", "shared", "full"};
  for (const ModelFiles& same : {by_numbers, by_pattern, by_list}) {
    EXPECT_TRUE(RunChunks(same, {}, tokens, 1000) == want);
  }
  ModelFiles other = files;
  other.config["indexer_types"] = {"full", "shared", "shared"};
  EXPECT_FALSE(RunChunks(other, {}, tokens, 1000) == want);
}

// Chunks change nothing, in whatever format the keys and those of the indexer
// are kept; blocks neither.
TEST(SparseAttentionTest, ChunksInEveryKvFormat) {
  for (const char* name : {"deepseek_v32", "glm_moe_dsa"}) {
    const std::vector<int32_t> tokens = LongPrompt(name);
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16,
                              DType::kI8, DType::kF8E4M3, DType::kKvQ4}) {
      SCOPED_TRACE(std::string(name) + " " + std::string(DTypeName(dtype)));
      ModelLoadOptions options;
      options.kv_dtype = dtype;
      const ModelFiles files = Open(name, "config.json");
      const auto whole = RunChunks(files, options, tokens, 1000);
      options.kv_block_size = 32;
      for (const int64_t chunk : {1, 17, 64}) {
        EXPECT_TRUE(RunChunks(files, options, tokens, chunk) == whole) << chunk;
      }
    }
  }
}

TEST(SparseAttentionTest, TheCacheHoldsAKeyOfTheIndexerBesides) {
  const auto device = Cpu();
  for (const auto& [name, indexers] :
       {std::pair{"deepseek_v32", 3}, std::pair{"glm_moe_dsa", 2}}) {
    SCOPED_TRACE(name);
    ModelLoadOptions options;
    options.kv_dtype = DType::kBF16;
    const auto model = PlanModel(Open(name, "config.json"), *device, options);
    ASSERT_TRUE(model.ok()) << model.status();
    const KvLayout& layout = (*model)->kv_layout();
    EXPECT_EQ(layout.num_groups(), 1u);
    ASSERT_EQ(layout.num_layers(), 3 + indexers);
    // The latent's 32 elements and 16 that are rotated; a key of 32.
    EXPECT_EQ(layout.bytes_per_token(),
              size_t{2} * (3 * 48 + static_cast<size_t>(indexers) * 32));
    const KvLayerView keys = layout.LayerView(1, nullptr);
    EXPECT_EQ(keys.head_dim, 32);
    EXPECT_EQ(keys.value_dim, 32);
    EXPECT_EQ(layout.LayerView(2, nullptr).head_dim, 48);
  }
}

// One selection of the step is planned for, whatever the layers.
TEST(SparseAttentionTest, TheSelectionIsAPartOfTheWorkspace) {
  const auto device = Cpu();
  ModelFiles files = Open("glm_moe_dsa", "config.json");
  const auto bytes = [&](int top_k) {
    files.config["index_topk"] = top_k;
    const auto model = PlanModel(files, *device, {});
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? (*model)->WorkspaceBytes(128, 0, 128) : 0;
  };
  EXPECT_GE(bytes(80) - bytes(16), size_t{128} * 64 * sizeof(int32_t));
  // More than there are positions are not planned for.
  EXPECT_EQ(bytes(1 << 28), bytes(512));
}

// Small matrices of a shape that tiles of tokens cross.
ModelFiles DrawnSparse(DType dtype) {
  ModelFiles files;
  files.config = {{"architectures", {"GlmMoeDsaForCausalLM"}},
                  {"vocab_size", 40},
                  {"hidden_size", 256},
                  {"intermediate_size", 256},
                  {"num_hidden_layers", 2},
                  {"mlp_layer_types", {"dense", "dense"}},
                  {"indexer_types", {"full", "shared"}},
                  {"num_attention_heads", 64},
                  {"q_lora_rank", 256},
                  {"qk_nope_head_dim", 16},
                  {"v_head_dim", 16},
                  {"index_topk", 24}};
  files.random = RandomWeights{};
  files.random->dtype = dtype;
  return files;
}

// In batches as alone, in every tile, with weights in any format.
TEST(SparseAttentionTest, BatchesAndTilesChangeNothing) {
  const auto device = Cpu();
  std::mt19937 random(3);
  std::vector<int32_t> tokens(130);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 40);
  const auto first = absl::MakeConstSpan(tokens).first(100);
  const auto second = absl::MakeConstSpan(tokens).subspan(100);
  for (const DType dtype :
       {DType::kBF16, DType::kQ4_K, DType::kF8_G128, DType::kI8_G128}) {
    SCOPED_TRACE(DTypeName(dtype));
    const auto model = LoadModel(DrawnSparse(dtype), *device, {});
    ASSERT_TRUE(model.ok()) << model.status();
    const auto alone = RunChunks(**model, *device, first, 7);
    const auto other = RunChunks(**model, *device, second, 30);
    EXPECT_TRUE(RunChunks(**model, *device, first, 100) == alone);
    ModelHarness harness(**model, *device, 1024);
    const int a = harness.AddSequence(200), b = harness.AddSequence(200);
    const ModelHarness::Chunk begins[] = {{a, first.first(35)}};
    const ModelHarness::Chunk goes_on[] = {{b, second}, {a, first.subspan(35)}};
    const auto head = harness.Forward(begins);
    const auto rest = harness.Forward(goes_on);
    ASSERT_TRUE(head.ok() && rest.ok());
    EXPECT_TRUE(std::equal(other.begin(), other.end(), rest->begin()));
    EXPECT_TRUE(std::equal(head->begin(), head->end(), alone.begin()));
    EXPECT_TRUE(
        std::equal(alone.begin() + 35, alone.end(), rest->begin() + 30));
  }
}

// The families' own sizes of heads: what the CPU gives, and in batches the same
// as alone.
TEST(SparseAttentionTest, CudaAtFullSize) {
  auto gpu = CreateCudaDevice(0, 0);
  if (!gpu.ok()) GTEST_SKIP() << "needs a GPU: " << gpu.status();
  const auto cpu = Cpu();
  std::mt19937 random(3);
  std::vector<int32_t> tokens(300);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 40);
  const auto first = absl::MakeConstSpan(tokens).first(200);
  const auto second = absl::MakeConstSpan(tokens).subspan(200);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    SCOPED_TRACE(DTypeName(dtype));
    const ModelFiles files = DrawnSparse(dtype);
    ModelLoadOptions options;
    options.batch_invariant = true;
    const auto on_gpu = LoadModel(files, **gpu, options);
    const auto fast = LoadModel(files, **gpu, {});
    const auto on_cpu = LoadModel(files, *cpu, {});
    ASSERT_TRUE(on_gpu.ok()) << on_gpu.status();
    ASSERT_TRUE(fast.ok() && on_cpu.ok());
    const auto want = RunChunks(**on_cpu, *cpu, first, 200);
    const auto whole = RunChunks(**on_gpu, **gpu, first, 200);
    // Rounded to bf16, two scores next to each other change places now and
    // then, and a token sees another key.
    const double tolerance = dtype == DType::kF32 ? kTolerance : 0.2;
    const double share = dtype == DType::kF32 ? 1.0 : kMostPositions;
    EXPECT_GE(ShareWithin(whole, want, tolerance), share);
    for (const int64_t chunk : {1, 64, 200}) {
      EXPECT_GE(
          ShareWithin(RunChunks(**fast, **gpu, first, chunk), want, tolerance),
          share)
          << chunk;
    }
    EXPECT_TRUE(RunChunks(**on_gpu, **gpu, first, 7) == whole);
    const auto other = RunChunks(**on_gpu, **gpu, second, 30);
    ModelHarness harness(**on_gpu, **gpu, 1024);
    const int a = harness.AddSequence(200), b = harness.AddSequence(200);
    const ModelHarness::Chunk both[] = {{b, second}, {a, first}};
    const auto logits = harness.Forward(both);
    ASSERT_TRUE(logits.ok()) << logits.status();
    EXPECT_TRUE(std::equal(other.begin(), other.end(), logits->begin()));
    EXPECT_TRUE(std::equal(whole.begin(), whole.end(), logits->begin() + 100));
  }
}

TEST(SparseAttentionTest, ConfigurationsThatMakeNoSense) {
  const auto device = Cpu();
  struct Bad {
    const char* key;
    Json value;
    absl::StatusCode code;
    const char* message = nullptr;  // null: names the key
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kUnknown = absl::StatusCode::kUnimplemented;
  const Bad cases[] = {
      {"index_topk", 0, kInvalid},
      {"index_topk", -5, kInvalid},
      {"index_topk", int64_t{1} << 40, kInvalid},
      {"index_topk", "16", kInvalid},
      {"index_n_heads", 0, kInvalid},
      {"index_n_heads", kMaxIndexHeads + 1, kInvalid},
      {"index_n_heads", 15, kInvalid, "wq_b"},
      {"index_head_dim", 0, kInvalid},
      {"index_head_dim", kMaxIndexHeadDim + 1, kInvalid},
      {"index_head_dim", 64, kInvalid, "wq_b"},
      {"index_head_dim", 8, kInvalid},
      {"indexer_rope_interleave", 1, kInvalid},
      {"q_lora_rank", nullptr, kUnknown},
      {"indexer_types", {"shared", "full", "full"}, kInvalid, "layer 0"},
      {"indexer_types", {"full", "full"}, kInvalid},
      {"indexer_types", {"full", "half", "full"}, kUnknown},
      {"indexer_types", "full", kInvalid},
      {"mlp_layer_types", {"dense", "moe", "sparse"}, kUnknown},
  };
  for (const Bad& bad : cases) {
    SCOPED_TRACE(bad.key + (" " + bad.value.dump()));
    ModelFiles files = Open("glm_moe_dsa", "config.json");
    files.config[bad.key] = bad.value;
    const auto status = PlanModel(files, *device, {}).status();
    EXPECT_EQ(status.code(), bad.code) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(bad.message == nullptr ? bad.key : bad.message));
  }
  ModelFiles files = Open("glm_moe_dsa", "config.json");
  files.config.erase("indexer_types");
  for (const Json& pattern :
       {Json("FF"), Json("FXF"), Json(3), Json({"full", "full"})}) {
    files.config["index_topk_pattern"] = pattern;
    const auto status = PlanModel(files, *device, {}).status();
    EXPECT_EQ(status.code(), kInvalid) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("index_topk_pattern"));
  }
  files.config.erase("index_topk_pattern");
  files.config["max_position_embeddings"] = 100000;
  files.config["index_topk"] = kMaxIndexTopK + 1;
  EXPECT_EQ(PlanModel(files, *device, {}).status().code(), kUnknown);
  files.config["index_topk"] = kMaxIndexTopK;
  EXPECT_TRUE(PlanModel(files, *device, {}).ok());
}

}  // namespace
}  // namespace inlay
