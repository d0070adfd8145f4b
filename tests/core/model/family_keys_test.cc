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
    {"olmoe", "clip_qkv", R"({"clip_qkv": 8.0})"},
    {"ernie4_5_moe", "use_bias", R"({"use_bias": true})"},
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
    {"mpt", "clip_qkv", R"({"attn_config": {"clip_qkv": 6.0}})"},
    {"mpt", "attn_type",
     R"({"attn_config": {"attn_type": "multiquery_attention"}})"},
    {"mpt", "qk_ln", R"({"attn_config": {"qk_ln": true}})"},
    {"mpt", "prefix_lm", R"({"attn_config": {"prefix_lm": true}})"},
    {"mpt", "alibi", R"({"attn_config": {"alibi": false}})"},
    {"mpt", "alibi_bias_max", R"({"attn_config": {"alibi_bias_max": 16}})"},
    {"phi", "tie_word_embeddings", R"({"tie_word_embeddings": true})"},
    {"olmo", "clip_qkv", R"({"clip_qkv": 8.0})"},
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
