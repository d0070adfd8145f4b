// Attention over compressed keys (deepseek_v4): where the cache holds what,
// long sequences in chunks and formats of every kind, weights in every format,
// configurations that make no sense.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/model/load_model.h"
#include "kernels/hyper_connection/hyper_connection.h"
#include "kernels/indexer/indexer.h"
#include "kernels/kv_compress/kv_compress.h"
#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

constexpr const char* kV4Models[] = {"deepseek_v4", "deepseek_v4_rates"};

std::vector<int32_t> SomeTokens(size_t count, int vocab, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(random() % static_cast<unsigned>(vocab));
  }
  return tokens;
}

// Beyond several of the longer compressed keys, in chunks that end anywhere in
// them, with blocks of any size.
TEST(CompressedAttentionTest, LongSequencesInChunks) {
  for (const char* name : kV4Models) {
    const std::vector<int32_t> tokens = SomeTokens(400, 320, 5);
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kKvQ4}) {
      SCOPED_TRACE(std::string(name) + " " + std::string(DTypeName(dtype)));
      ModelLoadOptions options;
      options.kv_dtype = dtype;
      const ModelFiles files = Open(name, "config.json");
      const auto whole = RunChunks(files, options, tokens, 1000);
      for (const int64_t chunk : {1, 19, 64}) {
        options.kv_block_size = chunk == 19 ? 8 : chunk == 64 ? 256 : 16;
        EXPECT_TRUE(RunChunks(files, options, tokens, chunk) == whole) << chunk;
      }
    }
  }
}

TEST(CompressedAttentionTest, TheCacheHoldsOneKeyOfSeveralTokens) {
  const auto device = Cpu();
  ModelLoadOptions options;
  options.kv_dtype = DType::kBF16;
  const auto model =
      PlanModel(Open("deepseek_v4", "config.json"), *device, options);
  ASSERT_TRUE(model.ok()) << model.status();
  const KvLayout& layout = (*model)->kv_layout();
  // Window; window, tokens and keys, tokens and keys of the indexer; window,
  // tokens and keys.
  ASSERT_EQ(layout.num_layers(), 1 + 5 + 3);
  const int row_tokens[] = {1, 1, 1, 4, 1, 4, 1, 1, 128};
  const int64_t windows[] = {32, 32, 8, 0, 8, 0, 32, 128, 0};
  for (int layer = 0; layer < layout.num_layers(); ++layer) {
    SCOPED_TRACE(layer);
    const auto at = static_cast<size_t>(layer);
    EXPECT_EQ(layout.row_tokens(layer), row_tokens[at]);
    const KvGroup& group = layout.groups()[layout.group_of(layer)];
    EXPECT_EQ(group.window, windows[at]);
    const KvLayerView view = layout.LayerView(layer, nullptr);
    EXPECT_EQ(view.block_size * row_tokens[at], group.block_size);
    EXPECT_EQ(view.value_dim > 0, windows[at] == 0 || windows[at] == 32);
  }
  EXPECT_EQ(layout.num_groups(), 4u);
  EXPECT_EQ((*model)->info().stream_width, 2 * (*model)->info().hidden_size);
}

// Weights of every format, drawn; in batches as alone.
TEST(CompressedAttentionTest, QuantisedWeightsAndBatches) {
  for (const DType dtype : {DType::kF16, DType::kQ8_0, DType::kQ4_K}) {
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    ModelFiles files;
    files.config = Open("deepseek_v4", "config.json").config;
    files.config["hidden_size"] = 256;
    files.config["q_lora_rank"] = 256;
    files.config["head_dim"] = 128;
    files.config["o_lora_rank"] = 128;
    files.config["moe_intermediate_size"] = 256;
    files.config["index_head_dim"] = 64;
    files.random = RandomWeights{};
    files.random->dtype = dtype;
    const std::vector<int32_t> tokens = SomeTokens(180, 320, 7);
    const auto first = absl::MakeConstSpan(tokens).first(140);
    const auto second = absl::MakeConstSpan(tokens).subspan(140);
    const auto whole = RunChunks(files, {}, first, 1000);
    const auto other = RunChunks(files, {}, second, 1000);
    EXPECT_TRUE(RunChunks(files, {}, first, 7) == whole);
    const auto device = Cpu();
    const auto model = LoadModel(files, *device, {});
    ASSERT_TRUE(model.ok()) << model.status();
    ModelHarness harness(**model, *device, 1024);
    const int a = harness.AddSequence(200), b = harness.AddSequence(200);
    const ModelHarness::Chunk both[] = {{b, second}, {a, first}};
    const auto logits = harness.Forward(both);
    ASSERT_TRUE(logits.ok()) << logits.status();
    EXPECT_TRUE(std::equal(other.begin(), other.end(), logits->begin()));
    EXPECT_TRUE(std::equal(whole.begin(), whole.end(), logits->begin() + 40));
  }
}

// Experts by token: where the ids change, the experts do.
TEST(CompressedAttentionTest, ATableOutOfRangeIsRefused) {
  const auto device = Cpu();
  ModelFiles files = Open("deepseek_v4", "config.json");
  auto weights = std::make_shared<MemoryWeights>(true);
  for (const WeightInfo& info : files.weights->weights()) {
    std::vector<std::byte> bytes(info.bytes);
    ASSERT_TRUE(files.weights->Read(info, 0, absl::MakeSpan(bytes)).ok());
    if (info.name == "layers.0.ffn.gate.tid2eid") {
      const int64_t expert = 4;
      std::memcpy(bytes.data() + 8 * 77, &expert, sizeof(expert));
    }
    weights->Add(info.name, info.dtype, info.shape, bytes.data());
  }
  files.weights = weights;
  const absl::Status status = LoadModel(files, *device, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("tid2eid"));
}

TEST(CompressedAttentionTest, ConfigurationsThatMakeNoSense) {
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
      {"compress_ratios", {0, 4}, kInvalid},
      {"compress_ratios", {0, 4, 64}, kInvalid},
      {"compress_ratios", "4", kInvalid},
      {"layer_types", {"sliding_attention", "full_attention", "x"}, kInvalid},
      {"mlp_layer_types", {"moe", "moe", "dense"}, kInvalid},
      {"num_hash_layers", -1, kInvalid},
      {"compress_rates",
       {{"heavily_compressed_attention", 100}},
       kUnknown,
       "powers of two"},
      {"compress_rates",
       {{"compressed_sparse_attention", 2048}},
       kUnknown,
       "powers of two"},
      {"compress_rates", 4, kInvalid},
      {"hc_mult", 0, kInvalid},
      {"hc_mult", kMaxHyperStreams + 1, kUnknown},
      {"hc_mult", 3, kInvalid, "hc_attn_fn"},
      {"hc_sinkhorn_iters", 0, kInvalid},
      {"hc_eps", -1.0, kInvalid},
      {"num_key_value_heads", 2, kUnknown},
      {"o_groups", 3, kInvalid},
      {"o_groups", 0, kInvalid},
      {"o_lora_rank", 0, kInvalid},
      {"q_lora_rank", 0, kInvalid},
      {"qk_rope_head_dim", 15, kInvalid},
      {"qk_rope_head_dim", 64, kInvalid},
      {"sliding_window", nullptr, kInvalid},
      {"index_topk", 0, kInvalid},
      {"index_n_heads", kMaxIndexHeads + 1, kInvalid},
      {"index_head_dim", 8, kInvalid},
      {"swiglu_limit", 0.0, kInvalid},
      {"scoring_func", "softmax", kUnknown},
      {"topk_method", "greedy", kUnknown},
      {"attention_bias", true, kUnknown},
      {"hidden_act", "gelu", kUnknown},
      {"rope_scaling",
       {{"type", "linear"}, {"factor", 2.0}},
       kUnknown,
       "rope type"},
  };
  for (const Bad& bad : cases) {
    SCOPED_TRACE(bad.key + (" " + bad.value.dump()));
    ModelFiles files = Open("deepseek_v4", "config.json");
    files.config[bad.key] = bad.value;
    const auto status = PlanModel(files, *device, {}).status();
    EXPECT_EQ(status.code(), bad.code) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(bad.message == nullptr ? bad.key : bad.message));
  }
}

}  // namespace
}  // namespace inlay
