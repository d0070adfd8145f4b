// Keys of single families' config.json: what is refused, by name, and what null
// and absence mean where they differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <variant>

#include "core/model/load_model.h"
#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

struct RefusedKey {
  const char* model;
  const char* key;  // that the message names
  const char* changes;
  absl::StatusCode code = absl::StatusCode::kUnimplemented;
};
constexpr auto kBad = absl::StatusCode::kInvalidArgument;
constexpr RefusedKey kRefused[] = {
    {"olmoe", "clip_qkv", R"({"clip_qkv": 0.0})", kBad},
    {"ernie4_5_moe", "use_bias", R"({"use_bias": true})"},
    {"hunyuan_v1_dense", "use_cla", R"({"use_cla": true})"},
    {"hunyuan_v1_dense", "alpha", R"({"rope_scaling": {"type": "dynamic",
        "alpha": -1}})",
     kBad},
    {"hunyuan_v1_dense", "head_dim", R"({"head_dim": 2})", kBad},
    {"hunyuan_v1_moe", "moe_topk", R"({"moe_topk": [5]})", kBad},
    {"hunyuan_v1_moe", "moe_topk", R"({"moe_topk": []})", kBad},
    {"hunyuan_v1_moe", "num_experts", R"({"num_experts": ["a"]})", kBad},
    {"hunyuan_v1_moe", "moe_layer_num_skipped",
     R"({"moe_layer_num_skipped": 1})"},
    {"gpt_neo", "attention_types", R"({"attention_layers": null,
        "attention_types": "global"})",
     kBad},
    {"gpt_neo", "attention_types",
     R"({"attention_layers": null,
        "attention_types": [[["global", "other"], 1]]})",
     kBad},
    {"gpt_neo", "attention_types", R"({"attention_layers": null,
        "attention_types": [[["global"], 3]]})",
     kBad},
    {"gpt_neo", "attention_types", R"({"attention_layers": null,
        "attention_types": [[["local"], 1]]})",
     kBad},
    {"gpt_neo", "attention_layers", R"({"attention_layers": ["local"]})", kBad},
    {"dbrx", "moe_normalize_expert_weights",
     R"({"ffn_config": {"moe_normalize_expert_weights": 2.0}})"},
    {"dbrx", "kv_n_heads", R"({"attn_config": {"kv_n_heads": "a"}})", kBad},
    {"dbrx", "tie_word_embeddings", R"({"tie_word_embeddings": true})"},
    {"gpt_neo", "window_size", R"({"window_size": 0})", kBad},
    {"ministral", "layer_types", R"({"layer_types": ["chunked_attention",
        "full_attention"]})"},
    {"ernie4_5_moe", "moe_norm_min", R"({"moe_norm_min": 0.5})"},
    {"ernie4_5_moe", "moe_k", R"({"moe_k": 5})", kBad},
    {"opt", "layer_norm_elementwise_affine",
     R"({"layer_norm_elementwise_affine": false})"},
    {"opt", "word_embed_proj_dim", R"({"word_embed_proj_dim": 65})"},
    {"falcon", "num_ln_in_parallel_attn", R"({"num_ln_in_parallel_attn": 2})"},
    {"falcon_40b", "parallel_attn", R"({"parallel_attn": false})"},
    {"falcon_rw", "num_kv_heads", R"({"num_kv_heads": 1})", kBad},
    {"gptj", "tie_word_embeddings", R"({"tie_word_embeddings": true})"},
    {"gptj", "rotary_dim", R"({"rotary_dim": null})", kBad},
    {"gptj", "rotary_dim", R"({"rotary_dim": 18})", kBad},
    {"gpt_bigcode", "add_cross_attention", R"({"add_cross_attention": true})"},
    {"bloom", "apply_residual_connection_post_layernorm",
     R"({"apply_residual_connection_post_layernorm": true})"},
    {"mpt", "no_bias", R"({"no_bias": false})"},
    {"mpt", "logit_scale", R"({"logit_scale": 0.5})"},
    {"mpt", "expansion_ratio", R"({"expansion_ratio": 2})"},
    {"mpt", "attn_type",
     R"({"attn_config": {"attn_type": "multiquery_attention"}})"},
    {"mpt", "qk_ln", R"({"attn_config": {"qk_ln": true}})"},
    {"mpt", "prefix_lm", R"({"attn_config": {"prefix_lm": true}})"},
    {"mpt", "alibi", R"({"attn_config": {"alibi": false}})"},
    {"mpt", "alibi_bias_max", R"({"attn_config": {"alibi_bias_max": 16}})"},
    {"phi", "tie_word_embeddings", R"({"tie_word_embeddings": true})"},
    {"olmo", "clip_qkv", R"({"clip_qkv": -8.0})", kBad},
    {"dots1", "scoring_func", R"({"scoring_func": "softmax"})"},
    {"glm4_moe_lite", "scoring_func", R"({"scoring_func": "softmax"})"},
    {"glm4_moe_lite", "mlp_layer_types", R"({"mlp_layer_types": ["dense"]})",
     kBad},
    {"exaone_moe", "topk_method", R"({"topk_method": "greedy"})"},
    {"minicpm3", "num_attention_heads", R"({"num_attention_heads": 3,
        "num_key_value_heads": 3})",
     kBad},
    {"minicpm3", "dim_model_base", R"({"dim_model_base": 0})", kBad},
    {"ministral3", "original_max_position_embeddings",
     R"({"rope_scaling": {"type": "linear", "factor": 2.0,
        "llama_4_scaling_beta": 0.1}})",
     kBad},
    {"mistral4", "partial_rotary_factor", R"({"qk_nope_head_dim": 32})"},
    {"mistral4", "norm_topk_prob", R"({"norm_topk_prob": null})", kBad},
    {"mistral4", "rope_interleave", R"({"rope_interleave": null})", kBad},
    {"lfm2_moe", "layer_types", R"({"layer_types": ["conv"]})", kBad},
};

TEST(FamilyKeysTest, AreRefusedByName) {
  const auto device = Cpu(1);
  for (const RefusedKey& row : kRefused) {
    SCOPED_TRACE(::testing::Message() << row.model << ' ' << row.changes);
    ModelFiles files = Open(row.model, "config.json");
    files.config.update(*ParseJson(row.changes, "changes"));
    const absl::Status status = PlanModel(files, *device, {}).status();
    EXPECT_EQ(status.code(), row.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.key));
  }
}

// Of any weights.
DecoderSpec Described(const char* model, const char* changes,
                      const char* erased = "") {
  const auto device = Cpu(1);
  ModelFiles files = Open(model, "config.json");
  files.config.update(*ParseJson(changes, "changes"));
  files.config.erase(erased);
  files.random = RandomWeights{};
  auto spec = DescribeDecoder(files, *device);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *std::move(spec) : DecoderSpec();
}

// As published, where transformers' own class is spelled otherwise.
TEST(FamilyKeysTest, NamesOfPublishedFiles) {
  for (const auto& [model, name] :
       {std::pair{"mpt", R"({"architectures": ["MPTForCausalLM"]})"},
        std::pair{"exaone_moe",
                  R"({"architectures": ["ExaoneMoEForCausalLM"]})"}}) {
    EXPECT_FALSE(Described(model, name).layers.empty());
  }
}

// Which layers of GPT-Neo have windows, by any of three.
TEST(FamilyKeysTest, GptNeosWindows) {
  for (const auto& [changes, windows] :
       {std::pair{R"({})", std::vector<int>{0, 32}},
        {R"({"attention_layers": ["local", "global"]})", {32, 0}},
        {R"({"attention_layers": null,
             "attention_types": [[["local"], 2]]})",
         {32, 32}},
        {R"({"attention_layers": null, "attention_types": null})", {0, 32}}}) {
    SCOPED_TRACE(changes);
    const DecoderSpec spec = Described("gpt_neo", changes);
    ASSERT_EQ(spec.layers.size(), windows.size());
    for (size_t i = 0; i < windows.size(); ++i) {
      EXPECT_EQ(std::get<AttentionSpec>(spec.layers[i].blocks[0].part).window,
                windows[i]);
    }
  }
}

// Layers of Hunyuan differ in what their lists say; the shared MLP is as wide
// as so many of intermediate_size.
TEST(FamilyKeysTest, HunyuansLists) {
  const DecoderSpec spec = Described("hunyuan_v1_moe", R"({
      "num_hidden_layers": 2, "moe_topk": [1, 3], "num_experts": [4, 5],
      "moe_intermediate_size": [16, 48], "num_shared_expert": [1, 2]})");
  ASSERT_EQ(spec.layers.size(), 2u);
  const int64_t wanted[2][4] = {{1, 4, 16, 32}, {3, 5, 48, 64}};
  for (size_t i = 0; i < 2; ++i) {
    const auto& moe = std::get<MoeSpec>(spec.layers[i].blocks[1].part);
    EXPECT_EQ(moe.routing.top_k, wanted[i][0]);
    EXPECT_EQ(static_cast<int64_t>(moe.experts.size()), wanted[i][1]);
    EXPECT_EQ(moe.experts[0].width, wanted[i][2]);
    EXPECT_EQ(moe.shared->width, wanted[i][3]);
  }
  const DecoderSpec plain =
      Described("hunyuan_v1_dense", R"({"use_qk_norm": false, "rope_scaling": {
          "type": "dynamic", "alpha": 0, "factor": 2.0}})");
  EXPECT_EQ(std::get<AttentionSpec>(plain.layers[0].blocks[0].part).q_norm.kind,
            NormKind::kNone);
  EXPECT_EQ(plain.ropes[0].scaling, RopeScaling::kDynamic);
}

// The golden model has the published factors, which are the defaults.
TEST(FamilyKeysTest, MiniCpm3sFactors) {
  const DecoderSpec spec =
      Described("minicpm3", R"({"scale_emb": 3, "scale_depth": 2.5,
                      "dim_model_base": 8})");
  EXPECT_EQ(spec.embedding_scale, 3.0f);
  EXPECT_EQ(spec.logit_scale, 0.25f);
  EXPECT_FLOAT_EQ(spec.layers[0].blocks[0].scale, 2.5f / std::sqrt(2.0f));
  EXPECT_FLOAT_EQ(spec.layers[1].blocks[1].scale, 2.5f / std::sqrt(2.0f));
  const DecoderSpec plain =
      Described("minicpm3", R"({"scale_depth": null, "dim_model_base": null})");
  EXPECT_EQ(plain.logit_scale, 1.0f);
  EXPECT_EQ(plain.layers[0].blocks[0].scale, 1.0f);
}

// null: what heads share of the width, and a head of keys for each of queries;
// absent, the family's numbers.
TEST(FamilyKeysTest, NullIsNotAbsent) {
  for (const char* model : {"seed_oss", "ernie4_5", "ministral3"}) {
    SCOPED_TRACE(model);
    const DecoderSpec spec =
        Described(model, R"({"head_dim": null, "num_key_value_heads": null})");
    const auto& attention =
        std::get<AttentionSpec>(spec.layers[0].blocks[0].part);
    EXPECT_EQ(attention.head_dim, 8);
    EXPECT_EQ(attention.num_kv_heads, 4);
    const DecoderSpec absent = Described(model, "{}", "head_dim");
    EXPECT_EQ(std::get<AttentionSpec>(absent.layers[0].blocks[0].part).head_dim,
              128);
  }
}

// Experts of LFM2 are scaled, and MLPs are as wide as they say.
TEST(FamilyKeysTest, Lfm2sExperts) {
  const DecoderSpec spec = Described(
      "lfm2_moe", R"({"routed_scaling_factor": 2.0, "use_expert_bias": false,
                      "num_dense_layers": 1})");
  const auto& moe = std::get<MoeSpec>(spec.layers[1].blocks[1].part);
  EXPECT_EQ(moe.routing.scale, 2.0f);
  EXPECT_EQ(moe.correction, "");
  EXPECT_EQ(std::get<MlpSpec>(spec.layers[0].blocks[1].part).width, 64);
}

TEST(FamilyKeysTest, CommandRsLength) {
  EXPECT_EQ(Described("cohere", "{}").max_positions, 512);
  EXPECT_EQ(Described("cohere", R"({"model_max_length": 4096})").max_positions,
            4096);
}

TEST(FamilyKeysTest, FalconsWidthByItsOldName) {
  const DecoderSpec usual = Described("falcon", "{}");
  const std::string old =
      "{\"n_embed\": " + std::to_string(usual.hidden_size) + "}";
  EXPECT_EQ(Described("falcon", old.c_str(), "hidden_size").hidden_size,
            usual.hidden_size);
}

// Queries are scaled from the span's first token on, where Llama 4's are from
// the one before.
TEST(FamilyKeysTest, TemperatureCountsFromZero) {
  const DecoderSpec spec = Described("ministral3", "{}");
  const auto& attention =
      std::get<AttentionSpec>(spec.layers[0].blocks[0].part);
  ASSERT_GE(attention.query_factor, 0);
  const RopeFrequencies factors = ComputeRopeFrequencies(
      spec.ropes[static_cast<size_t>(attention.query_factor)]);
  EXPECT_EQ(factors.FactorAt(31), 1.0f);
  EXPECT_FLOAT_EQ(factors.FactorAt(32), 1.0f + 0.5f * std::log(2.0f));
}

}  // namespace
}  // namespace inlay
