// Keys of single families' config.json: what they mean, and what null and
// absence do where they differ. (family_refusals_test.cc: what is refused.)
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <variant>

#include "core/model/load_model.h"
#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

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
                  R"({"architectures": ["ExaoneMoEForCausalLM"]})"},
        std::pair{"sarvam_moe", R"({"model_type": "bailing_moe",
                      "architectures": ["BailingMoeV2ForCausalLM"]})"}}) {
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

// Layers with one base share their rope; without lists the first and every
// fourth layer see all, and all rotate alike.
TEST(FamilyKeysTest, GranitesLayers) {
  const DecoderSpec spec = Described("granite_swa", R"({
      "num_hidden_layers": 5, "layer_types": null,
      "layer_rope_theta": [50.0, 0, 70.0, 50.0, 0.0]})");
  const DecoderSpec mixture = Described("granitemoe_swa", R"({
      "num_hidden_layers": 5, "layer_types": null, "sliding_window": 7,
      "layer_rope_theta": null})");
  ASSERT_EQ(spec.layers.size(), 5u);
  ASSERT_EQ(spec.ropes.size(), 2u);
  EXPECT_EQ(spec.ropes[1].theta, 70.0);
  ASSERT_EQ(mixture.ropes.size(), 1u);
  const int ropes[] = {0, -1, 1, 0, -1};
  for (size_t i = 0; i < 5; ++i) {
    SCOPED_TRACE(i);
    const auto& attention =
        std::get<AttentionSpec>(spec.layers[i].blocks[0].part);
    EXPECT_EQ(attention.rope, ropes[i]);
    EXPECT_EQ(attention.window, i % 4 == 0 ? 0 : 32);
    const auto& other =
        std::get<AttentionSpec>(mixture.layers[i].blocks[0].part);
    EXPECT_EQ(other.rope, 0);
    EXPECT_EQ(other.window, i % 4 == 0 ? 0 : 7);
    EXPECT_EQ(other.sinks,
              "model.layers." + std::to_string(i) + ".self_attn.sinks");
  }
}

// Sarvam's own names of keys, and of YaRN; queries that nothing is said of.
TEST(FamilyKeysTest, SarvamsKeys) {
  const DecoderSpec spec = Described("sarvam_mla", R"({
      "num_experts": 6, "num_shared_experts": 2, "rope_scaling": {
          "type": "deepseek_yarn", "factor": 40.0,
          "original_max_position_embeddings": 128, "mscale_all_dim": 1.0}})",
                                     "q_lora_rank");
  ASSERT_EQ(spec.ropes.size(), 1u);
  EXPECT_EQ(spec.ropes[0].scaling, RopeScaling::kYarn);
  EXPECT_EQ(spec.ropes[0].factor, 40.0);
  const auto& latent =
      std::get<LatentAttentionSpec>(spec.layers[0].blocks[0].part);
  EXPECT_EQ(latent.query.size(), 1u);
  const auto& moe = std::get<MoeSpec>(spec.layers[0].blocks[1].part);
  EXPECT_EQ(moe.experts.size(), 6u);
  EXPECT_EQ(moe.shared->width, 32);
  const DecoderSpec other = Described("sarvam_moe", R"({
      "use_qkv_bias": true, "use_qk_norm": false, "first_k_dense_replace": 1,
      "num_hidden_layers": 2})");
  const auto& attention =
      std::get<AttentionSpec>(other.layers[1].blocks[0].part);
  EXPECT_TRUE(attention.qkv[0].bias);
  EXPECT_FALSE(attention.output.bias);
  EXPECT_EQ(attention.q_norm.kind, NormKind::kNone);
  EXPECT_TRUE(std::holds_alternative<MlpSpec>(other.layers[0].blocks[1].part));
  EXPECT_EQ(std::get<MoeSpec>(other.layers[1].blocks[1].part).correction,
            "model.layers.1.mlp.gate.expert_bias");
}

// Layers of A.X-K1 without experts have no norm after the MLP; a correction of
// the choice is taken where there is one, whatever topk_method says.
TEST(FamilyKeysTest, AxsNorms) {
  const DecoderSpec spec = Described("axk1", R"({"num_hidden_layers": 2,
      "first_k_dense_replace": 1, "topk_method": "greedy"})");
  ASSERT_EQ(spec.layers.size(), 2u);
  EXPECT_EQ(spec.layers[0].blocks[1].post_norm.kind, NormKind::kNone);
  EXPECT_EQ(spec.layers[1].blocks[1].post_norm.name,
            "model.layers.1.post_mlp_layernorm");
  EXPECT_EQ(std::get<MoeSpec>(spec.layers[1].blocks[1].part).correction, "");
}

// LongCat-Flash: a layer is attention and MLP twice, its experts' sum is added
// at the end; queries and latents are scaled by their ranks. Keys have the
// names of its class, or those that transformers takes for them.
TEST(FamilyKeysTest, LongcatsLayers) {
  const DecoderSpec spec = Described("longcat_flash", R"({"num_layers": null,
      "num_hidden_layers": 4, "n_routed_experts": null, "num_local_experts": 4,
      "zero_expert_num": null, "q_lora_rank": 8, "kv_lora_rank": 2,
      "expert_ffn_hidden_size": null, "moe_intermediate_size": 8})");
  ASSERT_EQ(spec.layers.size(), 2u);
  const std::vector<BlockSpec>& blocks = spec.layers[1].blocks;
  ASSERT_EQ(blocks.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(blocks[i].deferred, i == 1) << i;
  EXPECT_EQ(blocks[1].pre_norm.name, blocks[2].pre_norm.name);
  const auto& moe = std::get<MoeSpec>(blocks[1].part);
  EXPECT_EQ(moe.experts.size(), 4u);
  EXPECT_EQ(moe.routing.num_experts, 4);
  EXPECT_EQ(moe.experts[3].width, 8);
  const auto& latent = std::get<LatentAttentionSpec>(blocks[3].part);
  EXPECT_EQ(latent.output.name, "model.layers.1.self_attn.1.o_proj");
  EXPECT_EQ(latent.norm.factor, 4.0f);
  EXPECT_FLOAT_EQ(latent.scale, 2.0f / std::sqrt(32.0f));
  const DecoderSpec silent =
      Described("longcat_flash", "{}", "zero_expert_num");
  EXPECT_EQ(
      std::get<MoeSpec>(silent.layers[0].blocks[1].part).routing.num_experts,
      5 + 256);
}

// Ling 3: heads of delta attention by either name, groups of layers, decays
// with and without a bound; the rotated part is all of it, whatever the share
// of heads is said to be.
TEST(FamilyKeysTest, LingsLayers) {
  const DecoderSpec spec = Described("bailing_hybrid", R"({
      "num_hidden_layers": 6, "layer_group_size": 3, "head_dim": 16,
      "linear_head_dim": 8, "linear_num_heads": 3, "linear_conv_kernel_dim": 3,
      "kda_lower_bound": -2.5, "rope_parameters": {"rope_type": "default",
      "rope_theta": 500.0, "partial_rotary_factor": 0.25}})");
  ASSERT_EQ(spec.layers.size(), 6u);
  EXPECT_EQ(spec.embedding, "model.word_embeddings.weight");
  ASSERT_EQ(spec.ropes.size(), 1u);
  EXPECT_EQ(spec.ropes[0].rotary_dim, 16);
  EXPECT_EQ(spec.ropes[0].theta, 500.0);
  for (size_t i = 0; i < 6; ++i) {
    SCOPED_TRACE(i);
    const PartSpec& part = spec.layers[i].blocks[0].part;
    const auto* delta = std::get_if<DeltaSpec>(&part);
    ASSERT_EQ(delta != nullptr, i % 3 != 2);
    if (delta == nullptr) {
      EXPECT_EQ(std::get<LatentAttentionSpec>(part).gate->n, 2);
      continue;
    }
    EXPECT_EQ(delta->num_heads, 3);
    EXPECT_EQ(delta->value_dim, 8);
    EXPECT_EQ(delta->num_taps, 3);
    EXPECT_EQ(delta->decay_bound, -2.5f);
    // The files say which of the two names it is: their layer 1 has "dense".
    EXPECT_EQ(delta->output.name.substr(15),
              i == 1 ? "attention.dense" : "attention.o_proj");
  }
  const DecoderSpec plain = Described("bailing_hybrid", R"({
      "kda_safe_gate": false, "kda_lower_bound": 0, "layer_types": ["full_attention",
      "linear_attention"]})");
  EXPECT_EQ(std::get<DeltaSpec>(plain.layers[1].blocks[0].part).decay_bound, 0);
}

// transformers saves half of local_attention beside it, and reads that.
TEST(FamilyKeysTest, EttinsWindows) {
  for (const auto& [keys, window] :
       {std::pair{R"({"sliding_window": 5})", 5},
        std::pair{R"({"sliding_window": null, "local_attention": 12})", 6}}) {
    SCOPED_TRACE(keys);
    const DecoderSpec spec = Described("modernbert_decoder", keys);
    int local = 0;
    for (const LayerSpec& layer : spec.layers) {
      const auto& attention = std::get<AttentionSpec>(layer.blocks[0].part);
      if (attention.window == 0) continue;
      ++local;
      EXPECT_EQ(attention.window, window);
    }
    EXPECT_GT(local, 0);
  }
}

// What LFM3 assumes where nothing is said.
TEST(FamilyKeysTest, Lfm3sLayers) {
  const DecoderSpec spec = Described("lfm3", R"({"num_hidden_layers": 7,
      "layer_types": null, "rope_parameters": null, "sliding_window": 9})");
  ASSERT_EQ(spec.layers.size(), 7u);
  for (size_t i = 0; i < 7; ++i) {
    SCOPED_TRACE(i);
    const auto* attention =
        std::get_if<AttentionSpec>(&spec.layers[i].blocks[0].part);
    ASSERT_EQ(attention != nullptr, i > 0 && i % 2 == 0);
    if (attention == nullptr) continue;
    EXPECT_EQ(attention->window, i == 4 ? 9 : 0);
    const RopeSpec& rope = spec.ropes[static_cast<size_t>(attention->rope)];
    EXPECT_EQ(rope.theta, i == 4 ? 1e4 : 1e6);
    EXPECT_EQ(rope.rotated_pairs, i == 4 ? 0 : attention->head_dim / 4);
  }
  const DecoderSpec plain = Described("lfm3", R"({"use_sandwich_norm": false,
      "use_attention_gate": false, "rms_norm_eps": 0.25})");
  EXPECT_EQ(plain.final_norm.epsilon, 0.25f);
  EXPECT_EQ(plain.layers[0].blocks[0].post_norm.kind, NormKind::kNone);
  EXPECT_FALSE(std::get<AttentionSpec>(plain.layers[2].blocks[0].part).gated);
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

// Layers without experts come first, and count their windows for themselves;
// they have rope where they see everything, unless some of them do not.
TEST(FamilyKeysTest, CoheresLayers) {
  const DecoderSpec spec = Described("cohere2_moe", R"({
      "num_hidden_layers": 7, "first_k_dense_replace": 2, "layer_types": null,
      "sliding_window_pattern": 3, "num_shared_experts": 2})");
  ASSERT_EQ(spec.layers.size(), 7u);
  const int windows[] = {0, 0, 32, 32, 0, 32, 32};
  const int ropes[] = {0, 0, 0, 0, -1, 0, 0};
  for (size_t i = 0; i < 7; ++i) {
    SCOPED_TRACE(i);
    const auto& attention =
        std::get<AttentionSpec>(spec.layers[i].blocks[0].part);
    EXPECT_EQ(attention.window, windows[i]);
    EXPECT_EQ(attention.rope, ropes[i]);
    EXPECT_EQ(std::holds_alternative<MoeSpec>(spec.layers[i].blocks[1].part),
              i >= 2);
  }
  const auto& moe = std::get<MoeSpec>(spec.layers[2].blocks[1].part);
  EXPECT_EQ(moe.routing.scale, 0.5f);
  EXPECT_EQ(moe.shared->inner_scale, 0.5f);
  EXPECT_EQ(moe.shared->width, 64);
  const DecoderSpec mixed = Described("cohere2_moe", R"({
      "first_k_dense_replace": 2, "layer_types": null,
      "prefix_dense_sliding_window_pattern": 2})");
  EXPECT_EQ(std::get<AttentionSpec>(mixed.layers[0].blocks[0].part).window, 32);
  EXPECT_EQ(std::get<AttentionSpec>(mixed.layers[1].blocks[0].part).rope, -1);
  const DecoderSpec added = Described("cohere2_moe", R"({
      "shared_expert_combination_strategy": "sum", "rms_norm_eps": 0.5,
      "expert_selection_fn": "softmax", "norm_topk_prob": false})");
  const auto& sum = std::get<MoeSpec>(added.layers[1].blocks[1].part);
  EXPECT_EQ(sum.routing.scale, 1.0f);
  EXPECT_EQ(sum.routing.score, RoutingScore::kSoftmax);
  EXPECT_TRUE(sum.routing.normalised);
  EXPECT_EQ(sum.shared->inner_scale, 1.0f);
  EXPECT_EQ(added.layers[0].pre_norm.kind, NormKind::kRms);
  EXPECT_EQ(added.final_norm.epsilon, 0.5f);
}

// What is absent is as transformers has it, which is as the model is.
TEST(FamilyKeysTest, MimosLayers) {
  const DecoderSpec spec = Described("mimo_v2_flash", R"({
      "num_hidden_layers": 7, "hybrid_layer_pattern": null,
      "moe_layer_freq": null, "swa_num_key_value_heads": null,
      "sliding_window": null, "sliding_window_size": 128,
      "routed_scaling_factor": null, "attention_value_scale": null,
      "partial_rotary_factor": null, "swa_rope_theta": null})");
  for (size_t i = 0; i < 7; ++i) {
    SCOPED_TRACE(i);
    const bool slides = i != 0 && i != 5;
    const auto& attention =
        std::get<AttentionSpec>(spec.layers[i].blocks[0].part);
    EXPECT_EQ(attention.window, slides ? 129 : 0);
    EXPECT_EQ(attention.num_kv_heads, slides ? 2 : 1);
    EXPECT_EQ(attention.sinks.empty(), !slides);
    EXPECT_EQ(attention.value_dim, 16);
    EXPECT_EQ(attention.context_scale, 1.0f);
    EXPECT_EQ(std::holds_alternative<MoeSpec>(spec.layers[i].blocks[1].part),
              i > 0);
  }
  EXPECT_EQ(spec.ropes[0].rotary_dim, 10);  // 0.334 of 32
  EXPECT_EQ(spec.ropes[1].theta, 1e4);
  const DecoderSpec absent =
      Described("mimo_v2_flash", R"({"sliding_window_size": null})",
                "attention_value_scale");
  const auto& attention =
      std::get<AttentionSpec>(absent.layers[1].blocks[0].part);
  EXPECT_EQ(attention.context_scale, 0.707f);
  EXPECT_EQ(attention.window, 31);
}

// Heads and gates of each layer; what is absent is as transformers has it.
TEST(FamilyKeysTest, LagunasLayers) {
  const DecoderSpec spec = Described("laguna", R"({
      "num_hidden_layers": 3, "num_attention_heads_per_layer": [2, 3, 1],
      "gating": "per-element", "layer_types": null, "mlp_layer_types": null,
      "mlp_only_layers": [0], "rope_parameters": null,
      "moe_router_logit_softcapping": 3.0})");
  for (size_t i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    const int heads[] = {2, 3, 1};
    const auto& attention =
        std::get<AttentionSpec>(spec.layers[i].blocks[0].part);
    EXPECT_EQ(attention.num_heads, heads[i]);
    EXPECT_EQ(attention.qkv[1].n, heads[i] * 16);
    EXPECT_FALSE(attention.head_gates);
    EXPECT_EQ(attention.window, 0);
    const auto* moe = std::get_if<MoeSpec>(&spec.layers[i].blocks[1].part);
    ASSERT_EQ(moe != nullptr, i > 0);
    if (moe == nullptr) continue;
    EXPECT_EQ(moe->router_softcap, 3.0f);
  }
  EXPECT_EQ(spec.ropes[0].rotary_dim, 8);
  EXPECT_EQ(spec.ropes[0].theta, 5e5);
  EXPECT_EQ(spec.ropes[1].rotary_dim, 16);
  EXPECT_EQ(spec.ropes[1].theta, 1e4);
  const DecoderSpec golden = Described("laguna", "{}", "gating");
  const auto& attention =
      std::get<AttentionSpec>(golden.layers[1].blocks[0].part);
  EXPECT_TRUE(attention.head_gates);
  EXPECT_EQ(attention.qkv[1].n, 4);
}

// Laguna M.1 has a window of 0 and no layer that slides.
TEST(FamilyKeysTest, LagunaWithoutWindows) {
  const DecoderSpec spec = Described("laguna", R"({"sliding_window": 0,
      "layer_types": null, "num_attention_heads_per_layer": null,
      "moe_router_use_sigmoid": true, "moe_router_score_func": "sigmoid"})");
  ASSERT_EQ(spec.layers.size(), 2u);
  for (const LayerSpec& layer : spec.layers) {
    const auto& attention = std::get<AttentionSpec>(layer.blocks[0].part);
    EXPECT_EQ(attention.window, 0);
    EXPECT_EQ(attention.num_heads, 2);
    EXPECT_EQ(attention.rope, 0);
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

// What the published code assumes is no factor at all.
TEST(FamilyKeysTest, MiniCpmsFactors) {
  const DecoderSpec spec = Described("minicpm", R"({"dim_model_base": 8})");
  EXPECT_EQ(spec.embedding_scale, 12.0f);
  EXPECT_EQ(spec.logit_scale, 0.25f);
  EXPECT_FLOAT_EQ(spec.layers[1].blocks[1].scale, 1.4f / std::sqrt(2.0f));
  const DecoderSpec plain =
      Described("minicpm", R"({"scale_depth": null, "dim_model_base": null,
                      "scale_emb": null})");
  EXPECT_EQ(plain.embedding_scale, 1.0f);
  EXPECT_EQ(plain.logit_scale, 1.0f);
  EXPECT_EQ(plain.layers[0].blocks[0].scale, 1.0f);
}

// Experts by the softmax of all, as they are or normalised; none without their
// number.
TEST(FamilyKeysTest, FirstDeepseeksExperts) {
  const DecoderSpec spec = Described("deepseek", "{}");
  EXPECT_TRUE(std::holds_alternative<MlpSpec>(spec.layers[0].blocks[1].part));
  const auto& moe = std::get<MoeSpec>(spec.layers[1].blocks[1].part);
  EXPECT_EQ(moe.routing.score, RoutingScore::kSoftmax);
  EXPECT_FALSE(moe.routing.normalised);
  ASSERT_TRUE(moe.shared.has_value());
  EXPECT_EQ(moe.shared->width, 16);
  const DecoderSpec dense =
      Described("deepseek", R"({"n_routed_experts": null})");
  EXPECT_TRUE(std::holds_alternative<MlpSpec>(dense.layers[1].blocks[1].part));
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

// What config.json says of tying and what files store, as transformers 5 has
// it: a head that is stored and differs is used, equal ones are one matrix, and
// either of both serves where it is alone.
TEST(FamilyKeysTest, TiedHeadsThatAreStored) {
  constexpr const char* kEmbedding = "model.embed_tokens.weight";
  constexpr const char* kHead = "lm_head.weight";
  struct Case {
    bool ties;
    bool has_embedding;
    const char* head_from;  // "": not stored
    const char* embedding;  // that the spec then names
    const char* head;
    absl::StatusCode code = absl::StatusCode::kOk;
  };
  constexpr auto kMissing = absl::StatusCode::kNotFound;
  const Case cases[] = {
      {true, true, "", kEmbedding, ""},
      {true, true, kEmbedding, kEmbedding, ""},
      {true, true, kHead, kEmbedding, "lm_head"},
      {true, false, kHead, kHead, ""},
      {true, false, "", "", "", kMissing},
      {false, true, kEmbedding, kEmbedding, "lm_head"},
      {false, true, kHead, kEmbedding, "lm_head"},
      {false, true, "", "", "", kMissing},
      {false, false, kHead, "", "", kMissing},
  };
  const auto device = Cpu(1);
  const ModelFiles stored = Open("llama2", "config.json");
  for (const bool mapped : {true, false}) {
    for (const Case& row : cases) {
      SCOPED_TRACE(::testing::Message()
                   << row.ties << row.has_embedding << row.head_from);
      auto weights = std::make_shared<MemoryWeights>(mapped);
      for (const WeightInfo& info : stored.weights->weights()) {
        if (info.name == kHead) continue;
        if (info.name == kEmbedding && !row.has_embedding) continue;
        weights->Add(info, stored.weights->Mapped(info));
      }
      if (const WeightInfo* from = stored.weights->Find(row.head_from)) {
        weights->Add(kHead, from->dtype, from->shape,
                     stored.weights->Mapped(*from));
      }
      ModelFiles files = stored;
      files.weights = weights;
      files.config["tie_word_embeddings"] = row.ties;
      const auto spec = DescribeDecoder(files, *device);
      EXPECT_EQ(spec.status().code(), row.code) << spec.status();
      if (!spec.ok()) continue;
      EXPECT_EQ(spec->embedding, row.embedding);
      EXPECT_EQ(spec->head, row.head);
    }
  }
}

// A difference in the last byte is one.
TEST(FamilyKeysTest, HeadsAreComparedToTheirEnds) {
  const auto device = Cpu(1);
  for (const bool mapped : {true, false}) {
    for (const bool differs : {false, true}) {
      ModelFiles files = Open("llama2", "config.json");
      // Several of the pieces that are compared.
      const int64_t vocab =
          3 + (200 << 10) / files.config["hidden_size"].get<int64_t>() / 4;
      files.config["vocab_size"] = vocab;
      files.config["tie_word_embeddings"] = true;
      auto weights = std::make_shared<MemoryWeights>(mapped);
      for (const WeightInfo& info : files.weights->weights()) {
        if (!info.name.starts_with("model.layers") &&
            info.name != "model.norm.weight") {
          continue;
        }
        weights->Add(info, files.weights->Mapped(info));
      }
      const int64_t hidden = files.config["hidden_size"];
      std::vector<float> values(static_cast<size_t>(vocab * hidden), 0.5f);
      weights->Add("model.embed_tokens.weight", DType::kF32, {vocab, hidden},
                   values.data());
      if (differs) values.back() = 0.25f;
      weights->Add("lm_head.weight", DType::kF32, {vocab, hidden},
                   values.data());
      files.weights = weights;
      const auto spec = DescribeDecoder(files, *device);
      ASSERT_TRUE(spec.ok()) << spec.status();
      EXPECT_EQ(spec->head, differs ? "lm_head" : "");
    }
  }
}

// Its own names come before the usual ones, which old files write besides.
TEST(FamilyKeysTest, NeoxsRope) {
  const auto rope = [](const char* changes) {
    return Described("gpt_neox", changes).ropes.at(0);
  };
  constexpr char kOwn[] = R"({"rotary_emb_base": 300, "rotary_pct": 0.5,
      "rope_theta": 400, "partial_rotary_factor": 0.25})";
  EXPECT_EQ(rope(kOwn).theta, 300.0);
  EXPECT_EQ(rope(kOwn).rotary_dim, 16);
  constexpr char kNewer[] = R"({"rotary_emb_base": 300, "rotary_pct": 0.5,
      "rope_parameters": {"rope_theta": 500, "partial_rotary_factor": 1.0}})";
  EXPECT_EQ(rope(kNewer).theta, 500.0);
  EXPECT_EQ(rope(kNewer).rotary_dim, 32);
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
