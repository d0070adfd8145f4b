// Keys of families whose published files bring code of their own, and which are
// made of parts that others have: what they mean, and what is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/model/load_model.h"
#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

constexpr auto kBadNumber = absl::StatusCode::kInvalidArgument;
constexpr auto kNotThere = absl::StatusCode::kUnimplemented;

template <typename Part>
const Part& PartAt(const DecoderSpec& spec, size_t layer, size_t block) {
  return std::get<Part>(spec.layers[layer].blocks[block].part);
}

TEST(QwenOneTest, Layers) {
  for (const char* config : {"config.json", "config_v5.json"}) {
    SCOPED_TRACE(config);
    const DecoderSpec spec = SpecOf("qwen", "{}", config);
    EXPECT_EQ(spec.max_positions, 512);
    EXPECT_EQ(spec.final_norm.epsilon, 1e-3f);
    const auto& attention = PartAt<AttentionSpec>(spec, 1, 0);
    ASSERT_EQ(attention.qkv.size(), 1u);
    EXPECT_EQ(attention.qkv[0].n, 96);
    EXPECT_TRUE(attention.qkv[0].bias);
    EXPECT_FALSE(attention.output.bias);
    const auto& mlp = PartAt<MlpSpec>(spec, 1, 1);
    EXPECT_EQ(mlp.width, 16);
    EXPECT_EQ(mlp.input[0].name, "transformer.h.1.mlp.w2");
  }
}

// The context ends where the published code goes on otherwise.
TEST(QwenOneTest, Positions) {
  const auto positions = [](const char* changes) {
    return SpecOf("qwen", changes).max_positions;
  };
  EXPECT_EQ(positions(R"({"seq_length": 128})"), 128);
  EXPECT_EQ(positions(R"({"seq_length": 128, "use_logn_attn": false})"), 128);
  EXPECT_EQ(positions(R"({"seq_length": 128, "use_dynamic_ntk": false})"), 128);
  EXPECT_EQ(positions(R"({"seq_length": 128, "use_dynamic_ntk": false,
                          "use_logn_attn": false})"),
            512);
  EXPECT_EQ(positions(R"({"seq_length": 4096})"), 512);
  EXPECT_EQ(positions(R"({"seq_length": null})"), 512);
  const DecoderSpec half = SpecOf("qwen", R"({"rotary_pct": 0.5,
      "rotary_emb_base": 500})");
  EXPECT_EQ(half.ropes[0].rotary_dim, 8);
  EXPECT_EQ(half.ropes[0].theta, 500.0);
}

TEST(SmallThinkerTest, Layers) {
  for (const char* config : {"config.json", "config_v5.json"}) {
    SCOPED_TRACE(config);
    const DecoderSpec spec = SpecOf("smallthinker", "{}", config);
    EXPECT_EQ(PartAt<AttentionSpec>(spec, 0, 0).rope, -1);
    EXPECT_EQ(PartAt<AttentionSpec>(spec, 0, 0).window, 0);
    EXPECT_EQ(PartAt<AttentionSpec>(spec, 1, 0).rope, 0);
    EXPECT_EQ(PartAt<AttentionSpec>(spec, 1, 0).window, 32);
    EXPECT_EQ(spec.ropes[0].theta, 1.5e6);
    const auto& moe = PartAt<MoeSpec>(spec, 1, 1);
    EXPECT_TRUE(moe.routes_ahead);
    EXPECT_EQ(moe.routing.score, RoutingScore::kSigmoid);
    EXPECT_TRUE(moe.routing.normalised);
    EXPECT_EQ(moe.routing.top_k, 2);
    EXPECT_EQ(moe.experts[3].activation, Activation::kRelu);
    EXPECT_EQ(moe.experts[3].width, 16);
  }
  const DecoderSpec other = SpecOf("smallthinker", R"({
      "moe_primary_router_apply_softmax": true, "norm_topk_prob": false,
      "rope_layout": null, "sliding_window_layout": null})");
  const auto& moe = PartAt<MoeSpec>(other, 0, 1);
  EXPECT_EQ(moe.routing.score, RoutingScore::kSoftmax);
  EXPECT_TRUE(moe.routing.normalised);
  EXPECT_EQ(PartAt<AttentionSpec>(other, 0, 0).rope, 0);
  EXPECT_EQ(PartAt<AttentionSpec>(other, 1, 0).window, 0);
}

TEST(LingOneTest, Layers) {
  const DecoderSpec spec = SpecOf("bailing_moe", "{}");
  const auto& attention = PartAt<AttentionSpec>(spec, 0, 0);
  EXPECT_EQ(attention.qkv[2].name, "model.layers.0.attention.v_proj");
  EXPECT_EQ(attention.q_norm.kind, NormKind::kNone);
  const auto& moe = PartAt<MoeSpec>(spec, 0, 1);
  EXPECT_EQ(moe.routing.score, RoutingScore::kSoftmax);
  EXPECT_TRUE(moe.routing.normalised);
  EXPECT_EQ(moe.correction, "");
  EXPECT_EQ(moe.shared->width, 16);
  const DecoderSpec other = SpecOf("bailing_moe", R"({
      "num_experts_per_tok": 1, "first_k_dense_replace": 1,
      "num_shared_experts": null, "use_qkv_bias": true})");
  PartAt<MlpSpec>(other, 0, 1);
  EXPECT_FALSE(PartAt<MoeSpec>(other, 1, 1).routing.normalised);
  EXPECT_FALSE(PartAt<MoeSpec>(other, 1, 1).shared.has_value());
  EXPECT_TRUE(PartAt<AttentionSpec>(other, 1, 0).qkv[0].bias);
  EXPECT_FALSE(PartAt<AttentionSpec>(other, 1, 0).output.bias);
}

TEST(OpenElmTest, Layers) {
  const DecoderSpec spec = SpecOf("openelm", "{}");
  EXPECT_EQ(spec.max_positions, 512);
  EXPECT_TRUE(spec.head.empty());
  const auto& first = PartAt<AttentionSpec>(spec, 0, 0);
  EXPECT_EQ(first.num_heads, 2);
  EXPECT_EQ(first.num_kv_heads, 1);
  EXPECT_EQ(first.q_norm.epsilon, 1e-6f);
  const auto& second = PartAt<AttentionSpec>(spec, 1, 0);
  EXPECT_EQ(second.num_heads, 4);
  EXPECT_EQ(second.num_kv_heads, 2);
  EXPECT_EQ(second.output.k, 64);
  EXPECT_EQ(PartAt<MlpSpec>(spec, 0, 1).width, 16);
  EXPECT_EQ(PartAt<MlpSpec>(spec, 1, 1).width, 32);
  // 32 * 1.1 = 35.2: the multiple of 32 next to it; of 64 a whole one; of 30
  // the next one is less than nine tenths of it.
  const auto width = [](const char* changes) {
    return PartAt<MlpSpec>(SpecOf("openelm", changes), 1, 1).width;
  };
  EXPECT_EQ(width(R"({"ffn_dim_divisor": 32})"), 32);
  EXPECT_EQ(width(R"({"ffn_dim_divisor": 64})"), 64);
  EXPECT_EQ(width(R"({"ffn_dim_divisor": 30})"), 60);
  const DecoderSpec other = SpecOf("openelm", R"({
      "share_input_output_layers": null, "normalize_qk_projections": null})");
  EXPECT_EQ(other.head, "transformer.classifier");
  EXPECT_EQ(PartAt<AttentionSpec>(other, 0, 0).q_norm.kind, NormKind::kNone);
}

TEST(GroveMoeTest, Groups) {
  const DecoderSpec spec = SpecOf("grove_moe", "{}");
  ASSERT_EQ(spec.layers[1].blocks.size(), 3u);
  EXPECT_TRUE(spec.layers[1].blocks[1].deferred);
  const auto& small = PartAt<MoeSpec>(spec, 1, 2);
  EXPECT_EQ(small.routing.scale, 0.05f);
  EXPECT_EQ(small.router.name, PartAt<MoeSpec>(spec, 1, 1).router.name);
  for (const size_t e : {2, 3}) {
    EXPECT_EQ(small.experts[e].output.name,
              "model.layers.1.mlp.chunk_experts.1.down_proj");
  }
  EXPECT_EQ(small.experts[0].width, 16);
  const DecoderSpec other = SpecOf("grove_moe", R"({
      "parallel_expert_intermediate_size": null, "mlp_only_layers": [0]})");
  EXPECT_EQ(PartAt<MoeSpec>(other, 1, 2).experts[0].width, 128);
  EXPECT_EQ(other.layers[0].blocks.size(), 2u);
}

TEST(ArcticTest, Layers) {
  const DecoderSpec spec = SpecOf("arctic", "{}");
  ASSERT_EQ(spec.layers[0].blocks.size(), 3u);
  EXPECT_TRUE(spec.layers[0].blocks[0].deferred);
  EXPECT_EQ(spec.layers[0].blocks[0].pre_norm.name,
            "model.layers.0.post_attention_layernorm");
  EXPECT_TRUE(PartAt<MoeSpec>(spec, 0, 0).routing.normalised);
  EXPECT_EQ(PartAt<MlpSpec>(spec, 0, 2).width, 32);
  // Every second layer has experts where config.json is silent, in the place of
  // the MLP.
  const DecoderSpec other = SpecOf("arctic", R"({
      "moe_layer_frequency": null, "parallel_attn_mlp_res": null,
      "sliding_window": 7})");
  EXPECT_EQ(PartAt<MlpSpec>(other, 0, 1).input[1].name,
            "model.layers.0.block_sparse_moe.mlp.w3");
  EXPECT_EQ(other.layers[1].blocks.size(), 2u);
  EXPECT_EQ(PartAt<MoeSpec>(other, 1, 1).experts[2].width, 8);
  EXPECT_EQ(PartAt<AttentionSpec>(other, 1, 0).window, 7);
}

TEST(PlmTest, Layers) {
  for (const char* config : {"config.json", "config_v5.json"}) {
    SCOPED_TRACE(config);
    const DecoderSpec spec = SpecOf("plm", "{}", config);
    const auto& attention = PartAt<LatentAttentionSpec>(spec, 1, 0);
    EXPECT_EQ(attention.query.size(), 1u);
    EXPECT_EQ(attention.rope_dim, 8);
    EXPECT_EQ(attention.norm.epsilon, 1e-3f);
    EXPECT_EQ(attention.rope_style, RopeStyle::kInterleaved);
    EXPECT_EQ(spec.ropes[0].theta, 1e5);
    const auto& mlp = PartAt<MlpSpec>(spec, 1, 1);
    EXPECT_FALSE(mlp.gated);
    EXPECT_EQ(mlp.activation, Activation::kReluSquared);
  }
}

TEST(Rwkv7Test, Layers) {
  for (const char* config : {"config.json", "config_v5.json"}) {
    SCOPED_TRACE(config);
    const DecoderSpec spec = SpecOf("rwkv7", "{}", config);
    ASSERT_EQ(spec.layers.size(), 3u);
    EXPECT_EQ(spec.embedding_norm.name, "model.layers.0.pre_norm");
    EXPECT_EQ(spec.embedding_norm.kind, NormKind::kLayer);
    for (size_t i = 0; i < 3; ++i) {
      const auto& mix = PartAt<TimeMixSpec>(spec, i, 0);
      EXPECT_EQ(mix.num_heads, 2);
      EXPECT_EQ(mix.head_dim, 16);
      EXPECT_EQ(mix.first, i == 0);
      EXPECT_EQ(mix.mix.empty(), i == 0);
      EXPECT_TRUE(mix.rate[1].bias);
      EXPECT_FALSE(mix.gate[1].bias);
      EXPECT_EQ(mix.gate[0].n, 16);
      EXPECT_FLOAT_EQ(mix.epsilon, 64e-5f);
      const auto& mlp = PartAt<ShiftedMlpSpec>(spec, i, 1).mlp;
      EXPECT_EQ(mlp.activation, Activation::kReluSquared);
      EXPECT_EQ(mlp.width, 32);
    }
  }
}

// Where config.json is silent.
TEST(Rwkv7Test, Defaults) {
  const DecoderSpec spec = SpecOf("rwkv7", R"({
      "hidden_size": 192, "head_dim": null, "num_heads": null,
      "value_dim": null, "intermediate_size": null, "hidden_ratio": 3.1,
      "decay_low_rank_dim": null, "v_low_rank_dim": null, "norm_eps": null,
      "gate_low_rank_dim": null, "a_low_rank_dim": null})");
  const auto& mix = PartAt<TimeMixSpec>(spec, 1, 0);
  EXPECT_EQ(mix.num_heads, 3);
  EXPECT_EQ(mix.head_dim, 64);
  EXPECT_EQ(mix.decay[0].n, 64);
  EXPECT_EQ(mix.rate[0].n, 64);
  EXPECT_EQ(mix.mix[0].n, 16);
  EXPECT_EQ(mix.gate[0].n, 128);
  EXPECT_FLOAT_EQ(mix.epsilon, 64e-5f);
  // 595 of 32 each.
  EXPECT_EQ(PartAt<ShiftedMlpSpec>(spec, 1, 1).mlp.width, 608);
  const DecoderSpec counted = SpecOf("rwkv7", R"({"head_dim": null,
      "num_heads": 1})");
  EXPECT_EQ(PartAt<TimeMixSpec>(counted, 1, 0).head_dim, 32);
}

// fla's first files have a layer's mixes in one tensor; some have a mix of
// values in the first layer, which nothing reads.
TEST(Rwkv7Test, OlderFiles) {
  const ModelFiles files = Open("rwkv7", "config.json");
  const std::vector<int32_t> prompt = {5, 17, 99, 3, 42};
  const auto older = std::make_shared<MemoryWeights>(true);
  std::map<std::string, std::string> all;
  for (const WeightInfo& info : files.weights->weights()) {
    std::string bytes(info.bytes, '\0');
    ASSERT_TRUE(
        files.weights
            ->Read(info, 0,
                   absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()),
                                  bytes.size()))
            .ok());
    const size_t at = info.name.rfind(".attn.x_");
    if (at == info.name.npos) {
      older->Add(info, reinterpret_cast<const std::byte*>(bytes.data()));
    } else {
      std::string& mixes = all[info.name.substr(0, at + 8) + "x"];
      mixes.resize(6 * bytes.size());
      const size_t way = std::string("rwkvag").find(info.name.back());
      mixes.replace(way * bytes.size(), bytes.size(), bytes);
    }
  }
  ASSERT_EQ(all.size(), 3u);
  for (const auto& [name, bytes] : all) {
    older->Add(name, DType::kBF16, {6, 32}, bytes.data());
  }
  const std::vector<uint16_t> nothing(8 * 32, 0x7FC0);  // NaN
  older->Add("model.layers.0.attn.v_lora.lora.0.weight", DType::kBF16, {8, 32},
             nothing.data());
  ModelFiles first = files;
  first.weights = older;
  EXPECT_EQ(RunChunks(first, {}, prompt, 1 << 20),
            RunChunks(files, {}, prompt, 2));
}

struct ComposedRefusal {
  const char* model;
  const char* key;  // that the message names
  const char* changes;
  absl::StatusCode code = kNotThere;
};
constexpr ComposedRefusal kComposedRefusals[] = {
    {"qwen", "no_bias", R"({"no_bias": false})"},
    {"qwen", "scale_attn_weights", R"({"scale_attn_weights": false})"},
    {"qwen", "kv_channels", R"({"kv_channels": 8})"},
    {"qwen", "intermediate_size", R"({"intermediate_size": 33})", kBadNumber},
    {"qwen", "seq_length", R"({"seq_length": 0})", kBadNumber},
    {"qwen", "use_dynamic_ntk", R"({"use_dynamic_ntk": "yes"})", kBadNumber},
    {"qwen", "partial_rotary_factor", R"({"rotary_pct": 2.0})", kBadNumber},
    {"smallthinker", "moe_enable_early_router",
     R"({"moe_enable_early_router": false})"},
    {"smallthinker", "moe_enable_secondary_experts",
     R"({"moe_enable_secondary_experts": true})"},
    {"smallthinker", "moe_shared_primary_experts",
     R"({"moe_shared_primary_experts": 1})"},
    {"smallthinker", "use_qk_norm", R"({"use_qk_norm": true})"},
    {"smallthinker", "moe_layer_layout", R"({"moe_layer_layout": [0, 1]})"},
    {"smallthinker", "rope_layout", R"({"rope_layout": [1]})", kBadNumber},
    {"smallthinker", "rope_layout", R"({"rope_layout": [1, 2]})", kBadNumber},
    {"smallthinker", "rope_layout", R"({"rope_layout": {"0": 1}})", kBadNumber},
    {"smallthinker", "sliding_window_layout", R"({"sliding_window_layout": 1})",
     kBadNumber},
    {"smallthinker", "num_experts_per_tok",
     R"({"moe_num_active_primary_experts": 5})", kBadNumber},
    {"bailing_moe", "use_bias", R"({"use_bias": true})"},
    {"bailing_moe", "norm_softmax", R"({"norm_softmax": true})"},
    {"bailing_moe", "multi_gate", R"({"multi_gate": true})"},
    {"bailing_moe", "use_sliding_window", R"({"use_sliding_window": true})"},
    {"bailing_moe", "norm_head",
     R"({"norm_head": true, "tie_word_embeddings": true})"},
    {"openelm", "ffn_with_glu", R"({"ffn_with_glu": false})"},
    {"openelm", "normalization_layer_name",
     R"({"normalization_layer_name": "layer_norm"})"},
    {"openelm", "num_query_heads", R"({"num_query_heads": [2]})", kBadNumber},
    {"openelm", "num_query_heads", R"({"num_query_heads": [2, 4.5]})",
     kBadNumber},
    {"openelm", "num_query_heads", R"({"num_query_heads": [2, 1000000]})",
     kBadNumber},
    {"openelm", "num_kv_heads", R"({"num_kv_heads": [1, 3]})", kBadNumber},
    {"openelm", "num_kv_heads", R"({"num_kv_heads": 1})", kBadNumber},
    {"openelm", "ffn_multipliers", R"({"ffn_multipliers": [1, -1]})",
     kBadNumber},
    {"openelm", "ffn_multipliers", R"({"ffn_multipliers": [1, 1000000]})",
     kBadNumber},
    {"openelm", "ffn_dim_divisor", R"({"ffn_dim_divisor": 0})", kBadNumber},
    {"openelm", "activation_fn_name", R"({"activation_fn_name": "tanhshrink"})",
     kNotThere},
    {"grove_moe", "num_experts_per_group", R"({"num_experts_per_group": 3})",
     kBadNumber},
    {"grove_moe", "parallel_expert_intermediate_size",
     R"({"parallel_expert_intermediate_size": 0})", kBadNumber},
    {"grove_moe", "expert_group_scale", R"({"expert_group_scale": 0})",
     kBadNumber},
    {"arctic", "moe_layer_frequency", R"({"moe_layer_frequency": 0})",
     kBadNumber},
    {"arctic", "attention_bias", R"({"attention_bias": true})"},
    {"arctic", "head_dim", R"({"head_dim": 8})"},
    {"plm", "q_lora_rank", R"({"q_lora_rank": 16})"},
    {"plm", "attention_bias", R"({"attention_bias": true})"},
    {"plm", "mlp_bias", R"({"mlp_bias": true})"},
    {"plm", "kv_lora_rank", R"({"kv_lora_rank": 0})", kBadNumber},
};

TEST(ComposedFamilies, RefusalsNameTheKey) {
  const auto device = Cpu(1);
  for (const ComposedRefusal& row : kComposedRefusals) {
    SCOPED_TRACE(::testing::Message() << row.model << ' ' << row.changes);
    ModelFiles files = Open(row.model, "config.json");
    files.config.update(*ParseJson(row.changes, "changes"));
    const absl::Status status = PlanModel(files, *device, {}).status();
    EXPECT_EQ(status.code(), row.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.key));
  }
}

}  // namespace
}  // namespace inlay
