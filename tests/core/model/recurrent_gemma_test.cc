// RecurrentGemma's config.json: what its keys mean, and what they default to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "core/model/load_model.h"
#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

template <typename Part>
const Part& GriffinPart(const DecoderSpec& spec, size_t layer, size_t block) {
  return std::get<Part>(spec.layers[layer].blocks[block].part);
}

std::vector<bool> RecurrentLayers(const char* changes) {
  std::vector<bool> layers;
  for (const LayerSpec& layer : SpecOf("recurrent_gemma", changes).layers) {
    layers.push_back(std::holds_alternative<LruSpec>(layer.blocks[0].part));
  }
  return layers;
}

TEST(RecurrentGemmaTest, Layers) {
  for (const char* config : {"config.json", "config_v5.json"}) {
    SCOPED_TRACE(config);
    const DecoderSpec spec = SpecOf("recurrent_gemma", "{}", config);
    ASSERT_EQ(spec.layers.size(), 3u);
    EXPECT_EQ(spec.final_norm.name, "model.final_norm");
    EXPECT_EQ(spec.final_norm.kind, NormKind::kRmsZeroCentred);
    EXPECT_EQ(spec.final_softcap, 30.0f);
    EXPECT_EQ(spec.head, "");
    const auto& lru = GriffinPart<LruSpec>(spec, 1, 0);
    EXPECT_EQ(lru.width, 32);
    EXPECT_EQ(lru.num_heads, 2);
    EXPECT_EQ(lru.num_taps, 4);
    ASSERT_EQ(lru.input_gates.size(), 2u);
    EXPECT_EQ(lru.input_gates[1].name,
              "model.layers.1.temporal_block.rg_lru.input_gate.1");
    EXPECT_EQ(lru.recurrence_gates[1].k, 16);
    EXPECT_TRUE(lru.output.bias);
    const auto& attention = GriffinPart<AttentionSpec>(spec, 2, 0);
    EXPECT_EQ(attention.window, 32);
    EXPECT_EQ(attention.num_kv_heads, 1);
    EXPECT_FALSE(attention.qkv[1].bias);
    EXPECT_TRUE(attention.output.bias);
    EXPECT_EQ(spec.ropes.at(0).rotary_dim, 8);
    const auto& mlp = GriffinPart<MlpSpec>(spec, 2, 1);
    EXPECT_EQ(mlp.width, 16);
    EXPECT_TRUE(mlp.gated && mlp.input[1].bias && mlp.output.bias);
    EXPECT_EQ(mlp.activation, Activation::kGeluTanh);
  }
}

// Over and over, under either name.
TEST(RecurrentGemmaTest, Pattern) {
  using Flags = std::vector<bool>;
  EXPECT_EQ(RecurrentLayers(R"({"num_hidden_layers": 5})"),
            (Flags{true, true, false, true, true}));
  EXPECT_EQ(RecurrentLayers(R"({"_block_types": null})"),
            (Flags{true, true, false}));
  EXPECT_EQ(RecurrentLayers(R"({"_block_types": ["attention", "recurrent"]})"),
            (Flags{false, true, false}));
  EXPECT_EQ(RecurrentLayers(R"({"block_types": ["attention"]})"),
            (Flags{false, false, false}));
}

// Where config.json is silent.
TEST(RecurrentGemmaTest, Defaults) {
  const DecoderSpec spec = SpecOf("recurrent_gemma", R"({
      "lru_width": null, "conv1d_width": null, "attention_window_size": null,
      "logits_soft_cap": null, "num_key_value_heads": null,
      "hidden_activation": null, "partial_rotary_factor": null,
      "intermediate_size": null, "hidden_size": 64, "head_dim": null,
      "tie_word_embeddings": null, "rms_norm_eps": null,
      "max_position_embeddings": null})");
  const auto& lru = GriffinPart<LruSpec>(spec, 0, 0);
  EXPECT_EQ(lru.width, 64);
  EXPECT_EQ(lru.num_taps, 4);
  const auto& attention = GriffinPart<AttentionSpec>(spec, 2, 0);
  EXPECT_EQ(attention.window, 2048);
  EXPECT_EQ(attention.num_kv_heads, 2);
  EXPECT_EQ(attention.head_dim, 32);
  EXPECT_EQ(spec.ropes.at(0).rotary_dim, 16);
  EXPECT_EQ(spec.final_softcap, 30.0f);
  EXPECT_EQ(spec.final_norm.epsilon, 1e-6f);
  EXPECT_EQ(spec.max_positions, 1 << 17);
  EXPECT_EQ(GriffinPart<MlpSpec>(spec, 0, 1).width, 3840);
}

TEST(RecurrentGemmaTest, Keys) {
  const DecoderSpec spec = SpecOf("recurrent_gemma", R"({"lru_width": 48,
      "conv1d_width": 3, "attention_bias": true, "logits_soft_cap": 7.5,
      "sliding_window": 20,
      "tie_word_embeddings": false, "max_position_embeddings": 4096})");
  const auto& lru = GriffinPart<LruSpec>(spec, 0, 0);
  EXPECT_EQ(lru.input.n, 48);
  EXPECT_EQ(lru.gate.n, 48);
  EXPECT_EQ(lru.output.k, 48);
  EXPECT_EQ(lru.input_gates[0].n, 24);
  EXPECT_EQ(lru.num_taps, 3);
  const auto& attention = GriffinPart<AttentionSpec>(spec, 2, 0);
  EXPECT_EQ(attention.window, 20);
  EXPECT_TRUE(attention.qkv[2].bias);
  EXPECT_EQ(spec.final_softcap, 7.5f);
  EXPECT_EQ(spec.head, "lm_head");
  EXPECT_EQ(spec.max_positions, 4096);
}

// sqrt(width) with the eight bits that bf16 has: of the published sizes 50.5
// (for 50.596..) and 64.
TEST(RecurrentGemmaTest, EmbeddingScale) {
  const auto scale = [](const char* changes) {
    return SpecOf("recurrent_gemma", changes).embedding_scale;
  };
  EXPECT_EQ(scale(R"({"hidden_size": 2560})"), 50.5f);
  EXPECT_EQ(scale(R"({"hidden_size": 4096})"), 64.0f);
  EXPECT_EQ(scale("{}"), 5.65625f);
  // 9.9498.. lies nearer to 9.9375 than to 10.
  EXPECT_EQ(scale(R"({"hidden_size": 99, "lru_width": 32})"), 9.9375f);
}

struct GriffinRefusal {
  const char* key;  // that the message names
  const char* changes;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};
constexpr auto kNoSuchThing = absl::StatusCode::kUnimplemented;
constexpr GriffinRefusal kGriffinRefusals[] = {
    {"hidden_activation", R"({"hidden_activation": "gelu"})", kNoSuchThing},
    {"embeddings_scale_by_sqrt_dim",
     R"({"embeddings_scale_by_sqrt_dim": false})", kNoSuchThing},
    {"rope_scaling", R"({"rope_scaling": {"type": "linear", "factor": 2.0}})",
     kNoSuchThing},
    {"lru_width", R"({"lru_width": 33})"},
    {"lru_width", R"({"lru_width": 0})"},
    {"conv1d_width", R"({"conv1d_width": 1})"},
    {"conv1d_width", R"({"conv1d_width": 9})"},
    {"attention_window_size", R"({"attention_window_size": 0})"},
    {"sliding_window", R"({"sliding_window": "32"})"},
    {"logits_soft_cap", R"({"logits_soft_cap": 0})"},
    {"intermediate_size", R"({"intermediate_size": 1})"},
    {"_block_types", R"({"_block_types": []})"},
    {"_block_types", R"({"_block_types": "recurrent"})"},
    {"block_types", R"({"block_types": ["recurrent", "mamba"]})"},
    {"num_attention_heads",
     R"({"num_attention_heads": 8192, "num_key_value_heads": 1,
         "num_hidden_layers": 4096, "lru_width": 8192, "head_dim": 16})"}};

TEST(RecurrentGemmaTest, Refusals) {
  const auto device = Cpu(1);
  for (const GriffinRefusal& refusal : kGriffinRefusals) {
    SCOPED_TRACE(refusal.changes);
    ModelFiles files = Open("recurrent_gemma", "config.json");
    files.config.update(*ParseJson(refusal.changes, "changes"));
    const absl::Status status = PlanModel(files, *device, {}).status();
    EXPECT_EQ(status.code(), refusal.code) << status;
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr(refusal.key));
  }
}

}  // namespace
}  // namespace inlay
