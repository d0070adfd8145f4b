// Keys of families of 2025 and 2026, most of them the text of multimodal ones:
// what they mean, and what is assumed where config.json is silent.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <variant>

#include "core/model/load_model.h"
#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

// Layers that attend to images are no layers of text's.
TEST(NewerKeysTest, MllamasLayers) {
  const auto names = [](const DecoderSpec& spec) {
    std::string all;
    for (size_t i = 0; i < spec.layers.size(); ++i) {
      all += AttentionAt(spec, i).output.name.substr(13, 1);
    }
    return all;
  };
  DecoderSpec spec = SpecOf("mllama", R"({"tie_word_embeddings": true})");
  EXPECT_EQ(names(spec), "02");
  EXPECT_EQ(spec.embedding_rows, 120);
  EXPECT_EQ(spec.vocab_size, 112);
  EXPECT_EQ(spec.head, "lm_head");
  EXPECT_EQ(spec.tied_head, "");
  spec = SpecOf("mllama", R"({"cross_attention_layers": null,
      "num_hidden_layers": 10, "rope_theta": null})");
  EXPECT_EQ(names(spec), "01245679");
  EXPECT_EQ(spec.ropes[0].theta, 500000.0);
  EXPECT_EQ(names(SpecOf("mllama", R"({"cross_attention_layers": []})")),
            "012");
  EXPECT_EQ(names(SpecOf("mllama", R"({"cross_attention_layers":
                                       [2, 2, 7, -1]})")),
            "01");
}

// What Muse Glimmer assumes of layers where nothing is said of them; windows
// and ropes are apart.
TEST(NewerKeysTest, MuseGlimmersLayers) {
  DecoderSpec spec = SpecOf("muse_glimmer", R"({"layer_types": null,
      "layer_rope_theta": null, "num_hidden_layers": 6})");
  ASSERT_EQ(spec.layers.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    SCOPED_TRACE(i);
    const bool full = i == 1 || i == 5;
    EXPECT_EQ(AttentionAt(spec, i).window, full ? 0 : 32);
    EXPECT_EQ(AttentionAt(spec, i).rope, full ? -1 : 0);
    EXPECT_EQ(spec.layers[i].blocks[0].post_norm.epsilon, 1e-8f);
    EXPECT_EQ(spec.layers[i].blocks[1].pre_norm.epsilon, 1e-3f);
  }
  EXPECT_EQ(spec.final_norm.kind, NormKind::kRms);
  EXPECT_EQ(spec.layers[0].blocks[0].pre_norm.kind, NormKind::kRmsZeroCentred);
  EXPECT_FLOAT_EQ(AttentionAt(spec, 0).scale, 2.5f / 4);
  spec = SpecOf("muse_glimmer", R"({"qk_scale_factor": null,
      "output_multiplier": null, "post_norm_eps": null,
      "final_logit_softcapping": null, "attention_bias": true})");
  EXPECT_FLOAT_EQ(AttentionAt(spec, 0).scale, 3.87f / 4);
  EXPECT_FLOAT_EQ(spec.logit_scale, 0.196116135f);
  EXPECT_EQ(spec.final_softcap, 20.0f);
  EXPECT_EQ(spec.layers[0].blocks[1].post_norm.epsilon, 1e-8f);
  EXPECT_EQ(SpecOf("muse_glimmer", R"({"post_norm_eps": 0.25})")
                .layers[3]
                .blocks[0]
                .post_norm.epsilon,
            0.25f);
  // Which layers rotate is apart from which slide.
  const DecoderSpec apart =
      SpecOf("muse_glimmer", R"({"layer_rope_theta": [10000.0, 0, 0, 0]})");
  EXPECT_EQ(AttentionAt(apart, 0).rope, 0);
  EXPECT_EQ(AttentionAt(apart, 0).window, 0);
  EXPECT_EQ(AttentionAt(apart, 1).rope, -1);
  EXPECT_EQ(AttentionAt(apart, 1).window, 32);
  for (const size_t i : {0, 1, 2, 3}) {
    EXPECT_EQ(AttentionAt(spec, 0).qkv[i].bias, i != 1);  // its gate has none
  }
  EXPECT_TRUE(AttentionAt(spec, 0).output.bias);
}

// Both spellings of Phi-4-multimodal's config.json; layers have adapters beside
// them in published files.
TEST(NewerKeysTest, Phi4MultimodalsRope) {
  for (const char* config : {"config.json", "config_v5.json"}) {
    SCOPED_TRACE(config);
    DecoderSpec spec = SpecOf("phi4_multimodal", "{}", config);
    EXPECT_EQ(spec.ropes[0].scaling, RopeScaling::kLongRope);
    EXPECT_EQ(spec.ropes[0].rotary_dim, 12);
    EXPECT_EQ(spec.ropes[0].original_max, 64);
    spec = SpecOf("phi4_multimodal",
                  R"({"rope_scaling": null, "rope_parameters": null,
        "partial_rotary_factor": null, "rope_theta": null})",
                  config);
    EXPECT_EQ(spec.ropes[0].rotary_dim, 16);
    EXPECT_EQ(spec.ropes[0].theta, 10000.0);
  }
  DecoderSpec spec =
      SpecOf("phi4_multimodal", R"({"original_max_position_embeddings": null,
      "max_position_embeddings": null})");
  EXPECT_EQ(spec.ropes[0].original_max, 4096);
  EXPECT_EQ(spec.max_positions, 131072);
  EXPECT_EQ(AttentionAt(spec, 0).output.name,
            "model.layers.0.self_attn.o_proj.base_layer");
  EXPECT_EQ(std::get<MlpSpec>(spec.layers[0].blocks[1].part).input[0].name,
            "model.layers.0.mlp.gate_up_proj.base_layer");
}

// Which layers of DeepSeek-OCR have experts, by either key.
TEST(NewerKeysTest, DeepseekOcrsLayers) {
  for (const auto& [changes, kinds] :
       {std::pair{R"({})", "DE"},
        {R"({"first_k_dense_replace": null})", "EE"},
        {R"({"mlp_layer_types": ["sparse", "dense"]})", "ED"},
        {R"({"num_hidden_layers": 5, "moe_layer_freq": 2})", "DDEDE"}}) {
    SCOPED_TRACE(changes);
    const DecoderSpec spec = SpecOf("deepseek_ocr2", changes);
    std::string found;
    for (const LayerSpec& layer : spec.layers) {
      found +=
          std::holds_alternative<MoeSpec>(layer.blocks[1].part) ? 'E' : 'D';
    }
    EXPECT_EQ(found, kinds);
  }
  // It has heads by the width alone.
  const DecoderSpec spec = SpecOf("deepseek_ocr2", R"({"head_dim": 64})");
  EXPECT_EQ(AttentionAt(spec, 0).head_dim, 16);
  EXPECT_EQ(AttentionAt(spec, 0).rope_style, RopeStyle::kHalf);
}

// Gates of A.X-K2 are behind every norm before attention, and before experts.
TEST(NewerKeysTest, AxK2sGates) {
  for (const char* config : {"config.json", "config_v5.json"}) {
    SCOPED_TRACE(config);
    const DecoderSpec spec = SpecOf("axk2", "{}", config);
    ASSERT_EQ(spec.layers.size(), 2u);
    EXPECT_TRUE(spec.layers[0].blocks[0].input_gate.has_value());
    EXPECT_FALSE(spec.layers[0].blocks[1].input_gate.has_value());
    EXPECT_EQ(spec.layers[0].blocks[1].pre_norm.name,
              "model.layers.0.post_attention_layernorm");
    const BlockSpec& experts = spec.layers[1].blocks[1];
    ASSERT_TRUE(experts.input_gate.has_value());
    EXPECT_EQ(experts.pre_norm.name,
              "model.layers.1.post_attention_layernorm.norm");
    EXPECT_EQ(experts.input_gate->low.name,
              "model.layers.1.post_attention_layernorm.W_down");
    EXPECT_EQ(experts.input_gate->low.n, 4);
    const auto& latent =
        std::get<LatentAttentionSpec>(spec.layers[0].blocks[0].part);
    EXPECT_TRUE(latent.reads_both);
    EXPECT_EQ(latent.query.back().k, 32);
    EXPECT_EQ(latent.gate->n, 32);
    EXPECT_EQ(latent.indexer->query.k, 16);
    EXPECT_EQ(std::get<MoeSpec>(experts.part).routing.num_groups, 2);
  }
  const DecoderSpec plain = SpecOf("axk2", R"({"n_group": null,
      "topk_group": null, "gated_norm_rank": null, "moe_layer_freq": null,
      "first_k_dense_replace": null})");
  EXPECT_EQ(plain.layers[1].blocks[1].input_gate->high.k, 16);
  EXPECT_EQ(
      std::get<MoeSpec>(plain.layers[1].blocks[1].part).routing.num_groups, 1);
  EXPECT_TRUE(std::holds_alternative<MlpSpec>(plain.layers[0].blocks[1].part));
}

}  // namespace
}  // namespace inlay
