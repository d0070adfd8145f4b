// Keys of families that llama.cpp runs and transformers has no class of, or
// only as a part of another: what they mean, and what is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/model/load_model.h"
#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

constexpr auto kRefusedValue = absl::StatusCode::kInvalidArgument;
constexpr auto kRefusedKind = absl::StatusCode::kUnimplemented;

const MlpSpec& MlpOfLayer(const DecoderSpec& spec, size_t layer) {
  return std::get<MlpSpec>(spec.layers[layer].blocks[1].part);
}

const MoeSpec& MoeOfLayer(const DecoderSpec& spec, size_t layer) {
  return std::get<MoeSpec>(spec.layers[layer].blocks[1].part);
}

TEST(StepTest, Layers) {
  for (const char* config : {"config.json", "config_v5.json"}) {
    SCOPED_TRACE(config);
    const DecoderSpec spec = SpecOf("step3p5", "{}", config);
    ASSERT_EQ(spec.layers.size(), 2u);
    const AttentionSpec& full = AttentionAt(spec, 0);
    EXPECT_EQ(full.num_heads, 2);
    EXPECT_EQ(full.window, 0);
    EXPECT_TRUE(full.head_gates);
    EXPECT_EQ(full.qkv[1].n, 2);
    EXPECT_EQ(full.gate, GateFunction::kSigmoid);
    EXPECT_EQ(full.q_norm.kind, NormKind::kRmsZeroCentred);
    const AttentionSpec& sliding = AttentionAt(spec, 1);
    EXPECT_EQ(sliding.num_heads, 3);
    EXPECT_EQ(sliding.num_kv_heads, 1);
    EXPECT_EQ(sliding.qkv[1].n, 3);
    EXPECT_EQ(sliding.window, 32);
    const RopeSpec& rope = spec.ropes[static_cast<size_t>(full.rope)];
    EXPECT_EQ(rope.rotary_dim, 8);
    EXPECT_EQ(rope.theta, 5e6);
    EXPECT_EQ(rope.scaling, RopeScaling::kLlama3);
    EXPECT_EQ(rope.factor, 2.0);
    EXPECT_EQ(rope.high_freq_factor, 32.0);
    const RopeSpec& local = spec.ropes[static_cast<size_t>(sliding.rope)];
    EXPECT_EQ(local.rotary_dim, 16);
    EXPECT_EQ(local.theta, 1e4);
    EXPECT_EQ(local.scaling, RopeScaling::kNone);
    const MlpSpec& dense = MlpOfLayer(spec, 0);
    EXPECT_EQ(dense.activation, Activation::kCappedSilu);
    EXPECT_EQ(dense.limit, 0.5f);
    const MoeSpec& moe = MoeOfLayer(spec, 1);
    EXPECT_EQ(moe.experts[2].activation, Activation::kCappedSilu);
    EXPECT_EQ(moe.experts[2].limit, 0.3f);
    EXPECT_EQ(moe.shared->limit, 0.4f);
    EXPECT_EQ(moe.routing.score, RoutingScore::kSigmoid);
    EXPECT_TRUE(moe.routing.normalised);
    EXPECT_EQ(moe.routing.scale, 3.0f);
    EXPECT_EQ(moe.routing.top_k, 2);
    EXPECT_EQ(spec.final_norm.kind, NormKind::kRmsZeroCentred);
  }
}

// Where config.json is silent, and what its other spellings are.
TEST(StepTest, Defaults) {
  const DecoderSpec spec = SpecOf("step3p5", R"({
      "num_hidden_layers": 5, "num_nextn_predict_layers": null,
      "layer_types": null, "moe_layers_enum": null, "swiglu_limits": null,
      "swiglu_limits_shared": [null, null, null, null, 9], "rope_theta": 5000,
      "partial_rotary_factors": null, "rope_scaling": null,
      "attention_other_setting": null, "moe_router_scaling_factor": null,
      "share_expert_dim": null, "share_expert_dims": 48,
      "rms_norm_eps": null, "max_position_embeddings": null})");
  ASSERT_EQ(spec.layers.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(AttentionAt(spec, i).num_heads, 2);
    EXPECT_EQ(AttentionAt(spec, i).window, 0);
    EXPECT_EQ(std::holds_alternative<MlpSpec>(spec.layers[i].blocks[1].part),
              i < 3);
  }
  EXPECT_EQ(spec.ropes[0].rotary_dim, 16);
  EXPECT_EQ(spec.ropes[0].theta, 5000.0);
  EXPECT_EQ(spec.ropes[0].scaling, RopeScaling::kNone);
  EXPECT_EQ(spec.max_positions, 512);
  EXPECT_EQ(MlpOfLayer(spec, 0).activation, Activation::kSilu);
  EXPECT_EQ(MoeOfLayer(spec, 3).shared->activation, Activation::kSilu);
  EXPECT_EQ(MoeOfLayer(spec, 3).shared->width, 48);
  EXPECT_EQ(MoeOfLayer(spec, 4).shared->limit, 9.0f);
  EXPECT_EQ(MoeOfLayer(spec, 4).experts[0].activation, Activation::kSilu);
  EXPECT_EQ(MoeOfLayer(spec, 4).routing.scale, 1.0f);
  EXPECT_EQ(spec.final_norm.epsilon, 1e-5f);
  const DecoderSpec listed = SpecOf("step3p5", R"({"moe_layers_enum": [0]})");
  EXPECT_TRUE(std::holds_alternative<MoeSpec>(listed.layers[0].blocks[1].part));
  const DecoderSpec both = SpecOf("step3p5", R"({"moe_layers_enum": "0, 1",
      "num_sliding_attention_heads": 4})");
  EXPECT_TRUE(std::holds_alternative<MoeSpec>(both.layers[0].blocks[1].part));
  EXPECT_TRUE(std::holds_alternative<MoeSpec>(both.layers[1].blocks[1].part));
  EXPECT_EQ(AttentionAt(both, 1).num_heads, 4);
}

TEST(BaichuanFamilyTest, Positions) {
  const DecoderSpec first = SpecOf("baichuan", "{}");
  const AttentionSpec& rotary = AttentionAt(first, 0);
  EXPECT_EQ(rotary.rope, 0);
  EXPECT_EQ(rotary.alibi_scale, 0.0f);
  EXPECT_EQ(first.ropes[0].rotary_dim, 16);
  EXPECT_EQ(first.ropes[0].theta, 1e4);
  EXPECT_FALSE(rotary.qkv[0].bias);
  const DecoderSpec second = SpecOf("baichuan2_13b", "{}");
  const AttentionSpec& alibi = AttentionAt(second, 0);
  EXPECT_EQ(alibi.rope, -1);
  EXPECT_EQ(alibi.alibi_scale, 1.0f);
  EXPECT_EQ(second.max_positions, 512);
  EXPECT_EQ(
      SpecOf("baichuan2_13b", R"({"model_max_length": null})").max_positions,
      4096);
  // Llama's scaling, where files have one.
  const DecoderSpec scaled = SpecOf("baichuan", R"({"rope_scaling":
      {"type": "linear", "factor": 4.0}})");
  EXPECT_EQ(scaled.ropes[0].scaling, RopeScaling::kLinear);
}

// With the folder's own tensors, which say what the model is.
DecoderSpec SpecOfFolder(const char* model, const char* changes) {
  const auto device = Cpu(1);
  ModelFiles files = Open(model, "config.json");
  files.config.merge_patch(*ParseJson(changes, "changes"));
  auto spec = DescribeDecoder(files, *device);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *std::move(spec) : DecoderSpec();
}

TEST(JinaBertTest, Layers) {
  for (const bool code : {false, true}) {
    SCOPED_TRACE(code);
    const DecoderSpec spec =
        SpecOfFolder(code ? "jina_bert_code" : "jina_bert", "{}");
    EXPECT_TRUE(spec.is_encoder);
    EXPECT_TRUE(spec.position_embedding.empty());
    EXPECT_EQ(spec.max_positions, 80);
    EXPECT_EQ(spec.num_segments, 2);
    const AttentionSpec& attention = AttentionAt(spec, 1);
    EXPECT_FALSE(attention.causal);
    EXPECT_EQ(attention.alibi_scale, 1.0f);
    EXPECT_EQ(attention.joint_norms, code);
    EXPECT_EQ(attention.q_norm.kind, code ? NormKind::kLayer : NormKind::kNone);
    const BlockSpec& block = spec.layers[1].blocks[0];
    EXPECT_EQ(block.post_norm_of_sum, code);
    EXPECT_EQ(block.sum_norm.name,
              code ? "bert.encoder.layer.1.layer_norm_1"
                   : "bert.encoder.layer.1.attention.output.LayerNorm");
    EXPECT_EQ(block.post_norm.name,
              code ? "bert.encoder.layer.1.attention.output.LayerNorm" : "");
    const MlpSpec& mlp = MlpOfLayer(spec, 1);
    EXPECT_TRUE(mlp.gated);
    EXPECT_EQ(mlp.activation, Activation::kGelu);
    ASSERT_EQ(mlp.input.size(), code ? 2u : 1u);
    EXPECT_FALSE(mlp.input[0].bias);
    EXPECT_EQ(mlp.input[0].n, code ? 16 : 32);
    EXPECT_TRUE(mlp.output.bias);
  }
  const DecoderSpec other =
      SpecOfFolder("jina_bert", R"({"feed_forward_type": "reglu"})");
  EXPECT_EQ(MlpOfLayer(other, 0).activation, Activation::kRelu);
}

// What the last layer leaves.
class LastStates : public LayerObserver {
 public:
  void OnLayer(int, TensorView hidden) override {
    states_.clear();
    for (int64_t r = 0; r < hidden.rows(); ++r) {
      const float* row = hidden.row<float>(r);
      states_.emplace_back(row, row + hidden.cols());
    }
  }
  const std::vector<std::vector<float>>& states() const { return states_; }

 private:
  std::vector<std::vector<float>> states_;
};

void ExpectStates(const ModelFiles& files, const Json& golden) {
  const auto device = Cpu(2);
  const auto model = LoadModel(files, *device, {});
  ASSERT_TRUE(model.ok()) << model.status();
  int compared = 0;
  for (const Json& one : golden["cases"]) {
    if (one.contains("token_type_ids")) continue;
    const std::vector<int32_t> ids = one["input_ids"];
    ModelHarness harness(**model, *device, static_cast<int64_t>(ids.size()));
    LastStates last;
    const auto count = static_cast<int64_t>(ids.size());
    const auto ran =
        harness.Forward({{harness.AddSequence(count), ids, 0}}, &last);
    ASSERT_TRUE(ran.ok()) << ran.status();
    ASSERT_EQ(last.states().size(), ids.size());
    const double tolerance = kTolerance * one["hidden_std"].get<double>();
    for (size_t i = 0; i < one["cls"].size(); ++i) {
      double mean = 0.0;
      for (const auto& row : last.states()) mean += row[i];
      EXPECT_NEAR(last.states().front()[i], one["cls"][i].get<double>(),
                  tolerance);
      EXPECT_NEAR(last.states().back()[i], one["last"][i].get<double>(),
                  tolerance);
      EXPECT_NEAR(mean / static_cast<double>(ids.size()),
                  one["mean"][i].get<double>(), tolerance);
    }
    ++compared;
  }
  EXPECT_GE(compared, 4);
}

Json GoldenOf(const std::string& model) {
  std::ifstream file(TestData() + "/models/" + model + "/golden.json");
  std::stringstream text;
  text << file.rdbuf();
  return *ParseJson(text.str(), model);
}

TEST(JinaBertTest, StatesOfTheReference) {
  for (const char* model : {"jina_bert", "jina_bert_code"}) {
    SCOPED_TRACE(model);
    ExpectStates(Open(model, "config.json"), GoldenOf(model));
  }
}

// As llama.cpp's converter writes it.
TEST(JinaBertTest, StatesOfAConvertedFile) {
  const auto files = OpenModelFiles(TestData() + "/gguf/jina_bert.gguf", {});
  ASSERT_TRUE(files.ok()) << files.status();
  ExpectStates(*files, GoldenOf("jina_bert"));
}

struct RefusedFamilyKey {
  const char* model;
  const char* key;  // that the message names
  const char* changes;
  absl::StatusCode code = kRefusedKind;
  const char* config = "config.json";
};
constexpr RefusedFamilyKey kFamilyRefusals[] = {
    {"step3p5", "use_qk_norm", R"({"use_qk_norm": false})"},
    {"step3p5", "use_moe", R"({"use_moe": false})"},
    {"step3p5", "norm_expert_weight", R"({"norm_expert_weight": false})"},
    {"step3p5", "use_head_wise_attn_gate",
     R"({"use_head_wise_attn_gate": false})"},
    {"step3p5", "use_moe_router_bias", R"({"use_moe_router_bias": false})"},
    {"step3p5", "sink", R"({"sink": true})"},
    {"step3p5", "zero_centered", R"({"zero_centered": false})"},
    {"step3p5", "attention_bias", R"({"attention_bias": true})"},
    {"step3p5", "mlp_bias", R"({"mlp_bias": true})"},
    {"step3p5", "use_bidirectional_attention",
     R"({"use_bidirectional_attention": true})"},
    {"step3p5", "moe_router_activation",
     R"({"moe_router_activation": "softmax"})"},
    {"step3p5", "att_impl_type", R"({"att_impl_type": "MFA"})"},
    {"step3p5", "hidden_act", R"({"hidden_act": "gelu"})"},
    {"step3p5", "moe_every_n_layer", R"({"moe_every_n_layer": 2})"},
    {"step3p5", "moe_layer_offset", R"({"moe_layer_offset": 1})"},
    {"step3p5", "use_rope_layers", R"({"use_rope_layers": [1, 0]})"},
    {"step3p5", "query_pre_attn_scalar", R"({"query_pre_attn_scalar": 64})"},
    {"step3p5", "gating", R"({"gating": "per-element"})"},
    {"step3p5", "yarn_only_types",
     R"({"yarn_only_types": ["sliding_attention"]})"},
    {"step3p5", "rope_theta", R"({"rope_theta": [1e6, 1e4],
        "layer_types": ["full_attention", "full_attention"]})"},
    {"step3p5", "partial_rotary_factors",
     R"({"partial_rotary_factors": [0.5, 1.0],
        "rope_theta": 1e4,
        "layer_types": ["full_attention", "full_attention"]})"},
    {"step3p5", "rope_theta", R"({"rope_theta": [1e6]})", kRefusedValue},
    {"step3p5", "swiglu_limits", R"({"swiglu_limits": [1.0]})", kRefusedValue},
    {"step3p5", "swiglu_limits_shared", R"({"swiglu_limits_shared": 7.0})",
     kRefusedValue},
    {"step3p5", "swiglu_limits", R"({"swiglu_limits": [0, -1.0, 0]})",
     kRefusedValue},
    {"step3p5", "swiglu_limits", R"({"swiglu_limits": [0, "7", 0]})",
     kRefusedValue},
    {"step3p5", "moe_layers_enum", R"({"moe_layers_enum": "1;2"})",
     kRefusedValue},
    {"step3p5", "moe_layers_enum", R"({"moe_layers_enum": [1.5]})",
     kRefusedValue},
    {"step3p5", "moe_layers_enum", R"({"moe_layers_enum": 1})", kRefusedValue},
    {"step3p5", "layer_types", R"({"layer_types": ["full_attention"]})",
     kRefusedValue},
    {"step3p5", "layer_types",
     R"({"layer_types": ["full_attention", "linear_attention"]})"},
    {"step3p5", "attention_other_setting.num_attention_groups",
     R"({"attention_other_setting": {"num_attention_groups": 3}})"},
    {"step3p5", "attention_other_setting.head_dim",
     R"({"attention_other_setting": {"head_dim": 32}})"},
    {"step3p5", "attention_other_setting.true_head_dim",
     R"({"attention_other_setting": {"true_head_dim": 32}})"},
    {"step3p5", "attention_other_setting.attention_type",
     R"({"attention_other_setting": {"attention_type": "full_attention"}})"},
    {"step3p5", "attention_other_setting", R"({"attention_other_setting": 3})"},
    {"step3p5", "multiple", R"({"num_attention_groups": 2,
        "attention_other_setting": {"num_attention_heads": 3}})",
     kRefusedValue},
    {"step3p5", "per_layer_config",
     R"({"per_layer_config": {"1": {"num_attention_heads": 4}}})", kRefusedKind,
     "config_v5.json"},
    {"step3p5", "rope_parameters",
     R"({"rope_parameters": {"rope_theta": 1e4}})", kRefusedKind,
     "config_v5.json"},
    {"step3p5", "sliding_window", R"({"sliding_window": null})", kRefusedValue},
    {"baichuan", "position_embedding", R"({"position_embedding": "none"})"},
    {"baichuan", "num_key_value_heads", R"({"num_key_value_heads": 1})"},
    {"baichuan", "head_dim", R"({"head_dim": 8})"},
    {"baichuan", "rope type", R"({"rope_scaling": {"type": "other"}})"},
    {"jina_bert", "position_embedding_type",
     R"({"position_embedding_type": "absolute"})"},
    {"jina_bert", "position_embedding_type",
     R"({"position_embedding_type": null})"},
    {"jina_bert", "feed_forward_type", R"({"feed_forward_type": "original"})"},
    {"jina_bert", "feed_forward_type", R"({"feed_forward_type": null})"},
    {"jina_bert", "is_decoder", R"({"is_decoder": true})"},
    {"jina_bert", "hidden_size", R"({"num_attention_heads": 5})",
     kRefusedValue},
    {"step3p5", "num_nextn_predict_layers",
     R"({"num_nextn_predict_layers": -1})", kRefusedValue},
};

TEST(LlamaCppFamilies, RefusalsNameTheKey) {
  const auto device = Cpu(1);
  for (const RefusedFamilyKey& row : kFamilyRefusals) {
    SCOPED_TRACE(::testing::Message() << row.model << ' ' << row.changes);
    ModelFiles files = Open(row.model, row.config);
    files.config.update(*ParseJson(row.changes, "changes"));
    const absl::Status status = PlanModel(files, *device, {}).status();
    EXPECT_EQ(status.code(), row.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.key));
  }
}

}  // namespace
}  // namespace inlay
