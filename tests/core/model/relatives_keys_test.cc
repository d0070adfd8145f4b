// Keys of families that are near relatives of others: what they mean, and what
// is assumed where config.json is silent.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/formats/sinusoid_source.h"
#include "core/model/load_model.h"
#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

// Llama in all but its names, and InternLM 2's biases, which are there unless
// config.json says otherwise.
TEST(RelativesKeysTest, LlamasUnderOtherNames) {
  for (const auto& [architecture, type] :
       {std::pair{"XverseForCausalLM", "xverse"},
        std::pair{"YiForCausalLM", "Yi"},
        std::pair{"AquilaForCausalLM", "aquila"}}) {
    SCOPED_TRACE(type);
    const Json names = {{"architectures", {architecture}},
                        {"model_type", type}};
    const DecoderSpec spec = SpecOf("llama3", DumpJson(names).c_str());
    const DecoderSpec llama = SpecOf("llama3", "{}");
    EXPECT_EQ(spec.embedding, llama.embedding);
    EXPECT_EQ(spec.max_positions, llama.max_positions);
    ASSERT_EQ(spec.layers.size(), llama.layers.size());
    EXPECT_EQ(AttentionAt(spec, 0).qkv[1].name,
              AttentionAt(llama, 0).qkv[1].name);
    EXPECT_EQ(AttentionAt(spec, 0).num_kv_heads,
              AttentionAt(llama, 0).num_kv_heads);
  }
  const DecoderSpec biased = SpecOf("internlm2", R"({"bias": null})");
  EXPECT_TRUE(AttentionAt(biased, 0).qkv[0].bias);
  EXPECT_TRUE(AttentionAt(biased, 0).output.bias);
  EXPECT_FALSE(std::get<MlpSpec>(biased.layers[0].blocks[1].part).output.bias);
  EXPECT_FALSE(AttentionAt(SpecOf("internlm2", "{}"), 0).qkv[0].bias);
}

// Which parts there are, and as wide as factors of the network's width make
// them; DeciLM 7B's, by KV heads alone.
TEST(RelativesKeysTest, LayersThatWereChosen) {
  const DecoderSpec spec = SpecOf("nemotron_nas", "{}");
  ASSERT_EQ(spec.layers.size(), 3u);
  for (const LayerSpec& layer : spec.layers) EXPECT_EQ(layer.blocks.size(), 1u);
  EXPECT_EQ(AttentionAt(spec, 0).num_kv_heads, 1);
  EXPECT_EQ(std::get<MlpSpec>(spec.layers[1].blocks[0].part).width, 256);
  EXPECT_EQ(spec.layers[1].blocks[0].pre_norm.name,
            "model.layers.2.post_attention_layernorm");
  EXPECT_EQ(AttentionAt(spec, 2).num_kv_heads, 2);
  EXPECT_EQ(AttentionAt(spec, 2).qkv[0].name,
            "model.layers.3.self_attn.q_proj");
  const DecoderSpec wider = SpecOf("nemotron_nas", R"({"block_configs": [
      {"attention": {"no_op": true}, "ffn": {"ffn_mult": 24.1}},
      {"attention": {"no_op": true}, "ffn": {"ffn_mult": 24.0}},
      {"attention": {"no_op": true}, "ffn": {"intermediate_size": 40,
                                             "hidden_act": "silu"}},
      {"attention": {"no_op": true}, "ffn": {"no_op": true}}]})");
  ASSERT_EQ(wider.layers.size(), 3u);
  EXPECT_EQ(std::get<MlpSpec>(wider.layers[2].blocks[0].part).width, 40);
  EXPECT_EQ(std::get<MlpSpec>(wider.layers[0].blocks[0].part).width, 512);
  EXPECT_EQ(std::get<MlpSpec>(wider.layers[1].blocks[0].part).width, 256);
  const DecoderSpec deci = SpecOf("nemotron_nas", R"({"block_configs": null,
      "model_type": "deci", "intermediate_size": 24,
      "num_key_value_heads_per_layer": [2, 1, 1, 2]})");
  ASSERT_EQ(deci.layers.size(), 4u);
  EXPECT_EQ(AttentionAt(deci, 0).num_kv_heads, 2);
  EXPECT_EQ(AttentionAt(deci, 1).num_kv_heads, 1);
  EXPECT_EQ(std::get<MlpSpec>(deci.layers[3].blocks[1].part).width, 24);
}

TEST(RelativesKeysTest, EmbeddingsOfBioGptAndXglm) {
  for (const char* model : {"biogpt", "xglm"}) {
    SCOPED_TRACE(model);
    EXPECT_FLOAT_EQ(SpecOf(model, "{}").embedding_scale, std::sqrt(32.0f));
    EXPECT_EQ(SpecOf(model, R"({"scale_embedding": false})").embedding_scale,
              1.0f);
    const DecoderSpec spec = SpecOf(model, R"({"layer_norm_eps": 0.5})");
    EXPECT_EQ(spec.final_norm.epsilon, 1e-5f);
    EXPECT_EQ(spec.position_offset, 2);
  }
  EXPECT_EQ(SpecOf("biogpt", "{}").head, "");  // the embedding
  const DecoderSpec apart =
      SpecOf("biogpt", R"({"tie_word_embeddings": false})");
  EXPECT_EQ(apart.head, "output_projection");
  const DecoderSpec xglm = SpecOf("xglm", R"({"d_model": null,
      "num_layers": null, "attention_heads": null, "ffn_dim": null,
      "vocab_size": null, "max_position_embeddings": null})");
  EXPECT_EQ(xglm.hidden_size, 1024);
  EXPECT_EQ(xglm.layers.size(), 24u);
  EXPECT_EQ(AttentionAt(xglm, 0).num_heads, 16);
  EXPECT_EQ(xglm.vocab_size, 256008);
  EXPECT_EQ(xglm.max_positions, 2048);
}

// The last layer's attention alone has a bias.
TEST(RelativesKeysTest, GptNeoxJapanesesLayers) {
  const DecoderSpec spec = SpecOf("gpt_neox_japanese", R"({
      "intermediate_multiple_size": 3, "rotary_pct": null,
      "num_hidden_layers": 3})");
  ASSERT_EQ(spec.layers.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const AttentionSpec& attention = AttentionAt(spec, i);
    EXPECT_FALSE(attention.qkv[0].bias);
    EXPECT_EQ(attention.output.bias, i == 2);
    const auto& mlp = std::get<MlpSpec>(spec.layers[i].blocks[1].part);
    EXPECT_EQ(mlp.width, 96);
    EXPECT_FALSE(mlp.output.bias);
    EXPECT_FALSE(spec.layers[i].parallel);
  }
  EXPECT_EQ(spec.ropes[0].rotary_dim, 16);  // whole heads
}

TEST(RelativesKeysTest, PersimmonsNorms) {
  const DecoderSpec spec =
      SpecOf("persimmon", R"({"partial_rotary_factor": null})");
  EXPECT_EQ(spec.ropes[0].rotary_dim, 8);  // half of each head
  EXPECT_EQ(AttentionAt(spec, 0).k_norm.kind, NormKind::kLayer);
  EXPECT_EQ(AttentionAt(SpecOf("persimmon", R"({"qk_layernorm": false})"), 0)
                .q_norm.kind,
            NormKind::kNone);
}

// Ropes are layers' types'; null: none.
TEST(RelativesKeysTest, CompasssRopes) {
  DecoderSpec spec = SpecOf("cohere_compass", "{}");
  EXPECT_EQ(AttentionAt(spec, 0).window, 32);
  EXPECT_EQ(AttentionAt(spec, 0).rope, 0);
  EXPECT_EQ(AttentionAt(spec, 0).rope_style, RopeStyle::kHalf);
  EXPECT_EQ(AttentionAt(spec, 1).window, 0);
  EXPECT_EQ(AttentionAt(spec, 1).rope, -1);
  EXPECT_EQ(spec.logit_scale, 0.25f);
  EXPECT_EQ(SpecOf("cohere_compass", R"({"logit_scale": null})").logit_scale,
            1.0f);
  spec = SpecOf("cohere_compass", R"({"rope_theta": 7.0, "rope_parameters": {
      "full_attention": {"rope_theta": 300.0}}})");
  ASSERT_EQ(spec.ropes.size(), 2u);
  EXPECT_EQ(spec.ropes[static_cast<size_t>(AttentionAt(spec, 1).rope)].theta,
            300.0);
  EXPECT_EQ(spec.ropes[static_cast<size_t>(AttentionAt(spec, 0).rope)].theta,
            50000.0);
}

// What Flint assumes of layers where nothing is said of them.
TEST(RelativesKeysTest, FlintsLayers) {
  const DecoderSpec spec = SpecOf("flint", R"({"layer_types": null,
      "mlp_only_layers": null, "sliding_window": 20,
      "num_hidden_layers": 8})");
  ASSERT_EQ(spec.layers.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    SCOPED_TRACE(i);
    const bool full = i < 2 || i == 5 || i == 7;
    EXPECT_EQ(AttentionAt(spec, i).window, full ? 0 : 20);
    EXPECT_EQ(AttentionAt(spec, i).rope, full ? -1 : 0);
    EXPECT_FALSE(AttentionAt(spec, i).sinks.empty());
    const PartSpec& part = spec.layers[i].blocks[1].part;
    EXPECT_EQ(std::holds_alternative<MlpSpec>(part), i < 2);
  }
  const auto& moe = std::get<MoeSpec>(spec.layers[2].blocks[1].part);
  EXPECT_EQ(moe.routing.score, RoutingScore::kSigmoid);
  EXPECT_TRUE(moe.routing.normalised);
  EXPECT_FALSE(moe.shared_gate.has_value());
  const DecoderSpec sums = SpecOf("flint", R"({"norm_topk_prob": false,
      "mlp_only_layers": []})");
  EXPECT_FALSE(
      std::get<MoeSpec>(sums.layers[0].blocks[1].part).routing.normalised);
}

// Whose keys are other families' mean nothing.
TEST(RelativesKeysTest, AriasExperts) {
  const DecoderSpec spec = SpecOf("aria_text", R"({"num_experts": 9,
      "num_experts_per_tok": 1, "norm_topk_prob": false, "mlp_bias": true,
      "hidden_act": "gelu", "moe_num_shared_experts": 3})");
  const auto& moe = std::get<MoeSpec>(spec.layers[0].blocks[1].part);
  EXPECT_EQ(moe.experts.size(), 3u);
  EXPECT_EQ(moe.routing.top_k, 2);
  EXPECT_TRUE(moe.routing.normalised);
  EXPECT_EQ(moe.experts[0].activation, Activation::kSilu);
  EXPECT_FALSE(moe.experts[0].output.bias);
  EXPECT_EQ(moe.shared->width, 48);
  EXPECT_EQ(moe.shared->activation, Activation::kGelu);
  EXPECT_TRUE(moe.shared->output.bias);
}

TEST(RelativesKeysTest, LaraMinisLayers) {
  const DecoderSpec spec = SpecOf("lara_mini", R"({"layer_types": null,
      "num_hidden_layers": 7, "linear_num_key_heads": null,
      "linear_num_value_heads": null})");
  ASSERT_EQ(spec.layers.size(), 7u);
  constexpr char kKinds[] = "lslfsls";
  for (size_t i = 0; i < 7; ++i) {
    SCOPED_TRACE(i);
    const PartSpec& part = spec.layers[i].blocks[0].part;
    const auto* delta = std::get_if<DeltaSpec>(&part);
    ASSERT_EQ(delta != nullptr, kKinds[i] == 'l');
    if (delta != nullptr) {
      EXPECT_EQ(delta->num_key_heads, 8);
      EXPECT_EQ(delta->num_heads, 16);
      EXPECT_TRUE(delta->norm.name.ends_with("out_norm"));
      continue;
    }
    EXPECT_EQ(AttentionAt(spec, i).window, kKinds[i] == 's' ? 32 : 0);
    EXPECT_EQ(AttentionAt(spec, i).rope, kKinds[i] == 's' ? 0 : -1);
    EXPECT_EQ(AttentionAt(spec, i).q_norm.kind, NormKind::kRms);
  }
}

// Transformers take turns; each use has an adapter of its own, and gives what
// it has to the mixer alone.
TEST(RelativesKeysTest, Zamba2sLayers) {
  const DecoderSpec spec = SpecOf("zamba2", R"({"layers_block_type": ["hybrid",
      "mamba", "hybrid", "hybrid"], "time_step_min": 0.5, "mamba_headdim": 3,
      "time_step_limit": [2, 3], "attention_head_dim": 3})");
  ASSERT_EQ(spec.layers.size(), 4u);
  EXPECT_TRUE(spec.shares_layers);
  const auto shared = [&](size_t layer) -> const SharedTransformerSpec& {
    EXPECT_TRUE(spec.layers[layer].blocks[0].aside);
    return std::get<SharedTransformerSpec>(spec.layers[layer].blocks[0].part);
  };
  EXPECT_EQ(spec.layers[1].blocks.size(), 1u);
  const std::string mlp = "shared_transformer.feed_forward.gate_up_proj";
  EXPECT_EQ(shared(0).gate_up.name, "model.layers.0." + mlp);
  EXPECT_EQ(shared(2).gate_up.name, "model.layers.2." + mlp);
  EXPECT_EQ(shared(3).gate_up.name, "model.layers.0." + mlp);
  EXPECT_EQ(shared(3).low.name, "model.layers.0." + mlp + "_adapter_list.2.0");
  EXPECT_EQ(shared(3).output.name, "model.layers.3.linear");
  EXPECT_EQ(shared(3).attention.head_dim, 16);
  EXPECT_EQ(shared(3).attention.qkv[0].k, 32);
  EXPECT_FLOAT_EQ(shared(3).attention.scale, std::sqrt(1.0f / 8.0f));
  const auto& mamba = std::get<MambaSpec>(spec.layers[3].blocks[1].part);
  EXPECT_EQ(mamba.prefix, "model.layers.3.mamba_decoder.mamba");
  EXPECT_EQ(mamba.least_step, 0.5f);
  EXPECT_EQ(mamba.head_dim, 16);
  EXPECT_EQ(mamba.norm_groups, 2);
  const DecoderSpec still = SpecOf("zamba2", R"({"use_mem_rope": false})");
  EXPECT_TRUE(still.ropes.empty());
  const DecoderSpec published = SpecOf("zamba2", R"({"layers_block_type": null,
      "num_hidden_layers": null})");
  ASSERT_EQ(published.layers.size(), 54u);
  std::vector<size_t> uses;
  for (size_t i = 0; i < 54; ++i) {
    if (published.layers[i].blocks.size() == 2) uses.push_back(i);
  }
  EXPECT_EQ(uses, (std::vector<size_t>{6, 12, 18, 24, 30, 36, 42, 47, 51}));
}

// What layer 1 stores is layer 3's as well, by a name of its own. Nothing is
// read.
class RepeatedWeights final : public WeightSource {
 public:
  explicit RepeatedWeights(std::shared_ptr<const WeightSource> stored)
      : stored_(std::move(stored)) {
    const std::string_view first = "model.layers.1.shared_transformer.";
    for (const WeightInfo& info : stored_->weights()) {
      infos_.push_back(info);
      if (!info.name.starts_with(first)) continue;
      infos_.push_back(info);
      infos_.back().name.replace(13, 1, "3");
    }
    std::sort(infos_.begin(), infos_.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
  }
  absl::Span<const WeightInfo> weights() const override { return infos_; }
  const std::byte* Mapped(const WeightInfo&) const override { return nullptr; }
  absl::Status Read(const WeightInfo&, uint64_t,
                    absl::Span<std::byte>) const override {
    return absl::InternalError("nothing is read");
  }
  uint64_t LeavePages(FileRange) const override { return 0; }

 private:
  std::shared_ptr<const WeightSource> stored_;
  std::vector<WeightInfo> infos_;
};

// Files may hold a transformer for each layer that has one.
TEST(RelativesKeysTest, Zamba2sLayersMayStoreTheirOwn) {
  const auto device = Cpu(1);
  ModelFiles files = Open("zamba2", "config.json");
  const auto owner = [&]() -> std::string {
    const auto spec = DescribeDecoder(files, *device);
    EXPECT_TRUE(spec.ok()) << spec.status();
    if (!spec.ok()) return "";
    const auto& part = spec->layers[3].blocks[0].part;
    return std::get<SharedTransformerSpec>(part).down.name;
  };
  const std::string down = "shared_transformer.feed_forward.down_proj";
  EXPECT_EQ(owner(), "model.layers.1." + down);
  files.weights = std::make_shared<RepeatedWeights>(std::move(files.weights));
  EXPECT_EQ(owner(), "model.layers.3." + down);
}

// Routers of files with experts for images lie inputs by outputs.
TEST(RelativesKeysTest, RoutersOfErnieBesideThoseOfImages) {
  for (const bool vision : {false, true}) {
    const DecoderSpec spec =
        SpecOf("ernie4_5_moe", vision ? R"({"vision_experts": true})" : "{}");
    int routers = 0;
    for (const LayerSpec& layer : spec.layers) {
      const auto* moe = std::get_if<MoeSpec>(&layer.blocks[1].part);
      if (moe == nullptr) continue;
      ++routers;
      EXPECT_EQ(moe->router.transposed, vision);
    }
    EXPECT_GT(routers, 0);
  }
  const DecoderSpec named = SpecOf("ernie4_5_moe", R"({"vision_experts": true,
      "num_hidden_layers": 2, "mlp_layer_types": ["sparse", "dense"]})");
  ASSERT_EQ(named.layers.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<MoeSpec>(named.layers[0].blocks[1].part));
  EXPECT_TRUE(std::holds_alternative<MlpSpec>(named.layers[1].blocks[1].part));
}

// What Hy4 assumes of layers, and what it has whatever others' keys say.
TEST(RelativesKeysTest, Hy4sLayers) {
  const DecoderSpec spec = SpecOf("hy_v4", R"({"indexer_types": null,
      "mlp_layer_types": null, "num_hidden_layers": 7, "hc_eps": 0.25,
      "hc_magnitude": null, "first_k_dense_replace": 3, "head_dim": 999,
      "num_key_value_heads": 3, "rope_interleave": true,
      "index_topk_freq": 1})");
  ASSERT_EQ(spec.layers.size(), 7u);
  for (size_t i = 0; i < 7; ++i) {
    SCOPED_TRACE(i);
    const std::vector<BlockSpec>& blocks = spec.layers[i].blocks;
    const auto& attention = std::get<LatentAttentionSpec>(blocks[0].part);
    EXPECT_EQ(attention.indexer.has_value(), i == 0 || i == 1 || i == 5);
    EXPECT_EQ(attention.rope_style, RopeStyle::kHalf);
    EXPECT_EQ(attention.gate->n, 2 * 16);
    EXPECT_FALSE(attention.sinks.empty());
    EXPECT_EQ(std::holds_alternative<MlpSpec>(blocks[1].part), i == 0);
  }
  const auto& moe = std::get<MoeSpec>(spec.layers[1].blocks[1].part);
  EXPECT_EQ(moe.experts[0].activation, Activation::kLimitedSilu);
  EXPECT_EQ(moe.experts[0].limit, 0.5f);
  EXPECT_EQ(moe.shared->activation, Activation::kSilu);
  EXPECT_TRUE(spec.streams->independent);
  EXPECT_EQ(spec.streams->magnitude, 2.0f);
  EXPECT_EQ(spec.streams->epsilon, 0.25f);
  const auto& first =
      std::get<LatentAttentionSpec>(spec.layers[0].blocks[0].part);
  EXPECT_EQ(first.indexer->key_norm.epsilon, spec.final_norm.epsilon);
  EXPECT_TRUE(first.indexer->rotates_last);
  const DecoderSpec inside = SpecOf("hy_v4", R"({"of_multimodal": true})");
  const auto& other =
      std::get<LatentAttentionSpec>(inside.layers[0].blocks[0].part);
  EXPECT_EQ(other.rope_style, RopeStyle::kInterleaved);
  EXPECT_EQ(other.indexer->rope_style, RopeStyle::kInterleaved);
  EXPECT_EQ(other.norm.epsilon, inside.final_norm.epsilon);
  EXPECT_EQ(other.query_norm.epsilon, inside.final_norm.epsilon);
  // Drawn weights have the names of published files.
  EXPECT_EQ(spec.layers[0].blocks[0].hyper,
            "model.layers.0.hc_pre.hc_attn_layer.hc");
}

// Which latents and selections layers read, and what is assumed of that.
TEST(RelativesKeysTest, MistralLarge4sLayers) {
  const auto at = [](const DecoderSpec& spec, size_t layer) {
    return std::get<LatentAttentionSpec>(spec.layers[layer].blocks[0].part);
  };
  // Layers of the cache: rows and keys of 0, rows and keys of 1.
  DecoderSpec spec = SpecOf("mistral_large4", "{}");
  EXPECT_EQ(at(spec, 0).kv_source, -1);
  EXPECT_EQ(at(spec, 1).kv_source, -1);
  EXPECT_EQ(at(spec, 2).kv_source, 0);
  EXPECT_FALSE(at(spec, 2).indexer.has_value());
  EXPECT_EQ(at(spec, 0).rope_dim, 16);
  EXPECT_EQ(at(spec, 1).rope_dim, 0);
  EXPECT_EQ(at(spec, 1).rope, -1);
  EXPECT_EQ(at(spec, 1).key_dim, 32);
  EXPECT_EQ(at(spec, 0).indexer->query.k, 16);
  EXPECT_EQ(spec.final_softcap, 8.0f);
  EXPECT_EQ(spec.ropes[0].log_scales, "lerope.alpha");
  spec = SpecOf("mistral_large4", R"({"num_hidden_layers": 6,
      "kv_source_layers": [0, 0, 2, 3, 3, 2], "mlp_layer_types": null,
      "no_rope_layers": [1, 1, 0, 1, 1, 0], "index_topk_freq": 2,
      "index_skip_topk_offset": 2, "indexer_types": null, "head_dim": 999,
      "q_lora_rank": 7, "norm_topk_prob": false})");
  ASSERT_EQ(spec.layers.size(), 6u);
  // full, full, shared, full, shared, full
  constexpr int kSources[] = {-1, 0, -1, -1, 4, 3};
  for (size_t i = 0; i < 6; ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(at(spec, i).kv_source, kSources[i]);
    EXPECT_EQ(at(spec, i).query.size(), 1u);
    EXPECT_EQ(std::holds_alternative<MlpSpec>(spec.layers[i].blocks[1].part),
              i == 0);
  }
  const auto& moe = std::get<MoeSpec>(spec.layers[1].blocks[1].part);
  EXPECT_TRUE(moe.routing.normalised);
  EXPECT_EQ(moe.routing.score, RoutingScore::kSoftmax);
  spec = SpecOf("mistral_large4", R"({"num_hidden_layers": 5,
      "kv_source_layers": null, "mlp_layer_types": null,
      "indexer_types": null, "no_rope_layers": null, "rope_scaling": null,
      "final_logit_softcapping": null, "max_position_embeddings": null})");
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(at(spec, i).rope, i == 3 ? -1 : 0);
    EXPECT_EQ(at(spec, i).kv_source, -1);
    EXPECT_TRUE(at(spec, i).indexer.has_value());
  }
  EXPECT_EQ(spec.ropes[0].scaling, RopeScaling::kYarn);
  EXPECT_EQ(spec.ropes[0].factor, 2048.0);
  EXPECT_EQ(spec.max_positions, 1048576);
  EXPECT_EQ(spec.final_softcap, 30.0f);
}

TEST(RelativesKeysTest, Glm53sLayers) {
  DecoderSpec spec = SpecOf("glm5_next", R"({"layer_types": null,
      "indexer_types": null, "mlp_layer_types": null, "num_hidden_layers": 9,
      "linear_attn_config": {"head_dim": 8, "num_heads": 3,
      "gate_lower_bound": null}})");
  ASSERT_EQ(spec.layers.size(), 9u);
  for (size_t i = 0; i < 9; ++i) {
    SCOPED_TRACE(i);
    const std::vector<BlockSpec>& blocks = spec.layers[i].blocks;
    const auto* latent = std::get_if<LatentAttentionSpec>(&blocks[0].part);
    EXPECT_EQ(latent != nullptr, i == 3 || i == 7);
    const auto* mlp = std::get_if<MlpSpec>(&blocks[1].part);
    EXPECT_EQ(mlp != nullptr, i < 3);
    if (mlp != nullptr) {
      EXPECT_EQ(mlp->limit, 0.5f);
    }
    if (latent != nullptr) {
      EXPECT_EQ(latent->rope_dim, 0);
      EXPECT_EQ(latent->selects, 40);  // 4 pools of 8, and the last tokens
      EXPECT_EQ(latent->selection_width(), 5);
      EXPECT_EQ(latent->indexer->max_keys, 64);
      EXPECT_EQ(latent->indexer->compressor->row_tokens, 8);
      continue;
    }
    const auto& delta = std::get<DeltaSpec>(blocks[0].part);
    EXPECT_EQ(delta.num_heads, 3);
    EXPECT_EQ(delta.key_dim, 8);
    EXPECT_EQ(delta.decay_bound, -5.0f);
  }
  const auto& moe = std::get<MoeSpec>(spec.layers[3].blocks[1].part);
  EXPECT_EQ(moe.experts[0].limit, 0.5f);
  EXPECT_EQ(moe.shared->limit, 0.5f);
  EXPECT_EQ(spec.streams->head, "");
  EXPECT_FALSE(spec.streams->independent);
  const auto bound_of = [](const char* changes) {
    const DecoderSpec spec = SpecOf("glm5_next", changes);
    return std::get<DeltaSpec>(spec.layers[0].blocks[0].part).decay_bound;
  };
  EXPECT_EQ(bound_of("{}"), -5.0f);
  EXPECT_EQ(bound_of(R"({"linear_lower_bound": -2.0})"), -2.0f);
  EXPECT_EQ(bound_of(R"({"linear_lower_bound": -2.0, "linear_attn_config": {
      "gate_lower_bound": -3.0}})"),
            -3.0f);
}

// Tokens are what the head gives; null: all that the embedding has.
TEST(RelativesKeysTest, TokensOfApertus15) {
  const DecoderSpec spec = SpecOf("apertus1p5_text", "{}");
  EXPECT_EQ(spec.vocab_size, 128);
  EXPECT_EQ(spec.embedding_rows, 160);
  const DecoderSpec whole =
      SpecOf("apertus1p5_text", R"({"output_vocab_size": null})");
  EXPECT_EQ(whole.vocab_size, 160);
  EXPECT_EQ(whole.embedding_rows, 0);
}

// What Kolibri 1 assumes of layers where nothing is said of them.
TEST(RelativesKeysTest, KolibrisLayers) {
  const DecoderSpec spec = SpecOf("kolibri1", R"({"layer_types": null,
      "num_hidden_layers": 6})");
  ASSERT_EQ(spec.layers.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(AttentionAt(spec, i).window, i == 4 ? 0 : 33);
    EXPECT_EQ(AttentionAt(spec, i).rope, i == 4 ? -1 : 0);
  }
  const auto& moe = std::get<MoeSpec>(spec.layers[0].blocks[1].part);
  EXPECT_EQ(moe.routing.score, RoutingScore::kLogitSigmoid);
  EXPECT_FALSE(moe.routing.normalised);
  EXPECT_EQ(moe.correction, "model.layers.0.moe.router.expert_bias");
}

// Both spellings of what selects keys; names of either kind of file.
TEST(RelativesKeysTest, MiniMaxM3sLayers) {
  for (const char* changes :
       {"{}", R"({"sparse_attention_config": null, "moe_layer_freq": null,
        "layer_types": ["full_attention", "minimax_m3_sparse"],
        "mlp_layer_types": ["dense", "sparse"], "index_n_heads": 2,
        "index_head_dim": 16, "index_block_size": 16,
        "index_topk_blocks": 4})"}) {
    SCOPED_TRACE(changes);
    const DecoderSpec spec = SpecOf("minimax_m3", changes);
    ASSERT_EQ(spec.layers.size(), 2u);
    EXPECT_FALSE(AttentionAt(spec, 0).block_index.has_value());
    const auto& index = AttentionAt(spec, 1).block_index;
    ASSERT_TRUE(index.has_value());
    EXPECT_EQ(index->block, 16);
    EXPECT_EQ(index->selects, 4);
    EXPECT_EQ(index->neighbours, 1);
    EXPECT_EQ(index->query.n, 32);
    EXPECT_EQ(index->query.name, "model.layers.1.self_attn.index_q_proj");
    EXPECT_TRUE(std::holds_alternative<MlpSpec>(spec.layers[0].blocks[1].part));
    const auto& moe = std::get<MoeSpec>(spec.layers[1].blocks[1].part);
    EXPECT_EQ(moe.routing.scale, 2.0f);
    EXPECT_EQ(moe.experts[0].activation, Activation::kClampedSilu);
    EXPECT_EQ(moe.shared->limit, 7.0f);
    EXPECT_EQ(moe.experts[0].input[1].name,
              "model.layers.1.block_sparse_moe.experts.0.w3");
  }
  // No more blocks than there are positions for.
  const DecoderSpec few = SpecOf("minimax_m3", R"({
      "max_position_embeddings": 50, "sparse_attention_config":
      {"sparse_topk_blocks": 100}})");
  EXPECT_EQ(AttentionAt(few, 1).block_index->selects, 4);
}

// The layers of the loop come as often as it runs, each with a place of its own
// in the cache; both ways to count layers.
TEST(RelativesKeysTest, DorysLoops) {
  for (const char* changes : {R"({"n_recurrent_loops": 3})",
                              R"({"n_recurrent_loops": 3,
        "num_hidden_layers": 3, "n_input_layers": 1, "n_output_layers": 1,
        "n_recurrent_layers": null, "layer_types": ["sliding_attention",
        "full_attention", "sliding_attention"]})"}) {
    SCOPED_TRACE(changes);
    const DecoderSpec spec = SpecOf("dory", changes);
    ASSERT_EQ(spec.layers.size(), 5u);
    EXPECT_TRUE(spec.shares_layers);
    for (size_t i = 0; i < 5; ++i) {
      SCOPED_TRACE(i);
      const bool loops = i > 0 && i < 4;
      EXPECT_EQ(AttentionAt(spec, i).window, loops ? 0 : 32);
      EXPECT_EQ(spec.layers[i].loop_norm.kind != NormKind::kNone, loops);
      EXPECT_EQ(spec.layers[i].begins_loop, i == 1);
      EXPECT_EQ(AttentionAt(spec, i).output.name,
                "backbone.layers." +
                    std::string(loops    ? "2"
                                : i == 0 ? "0"
                                         : "4") +
                    ".mixer.o_proj");
    }
    EXPECT_EQ(spec.ropes[static_cast<size_t>(AttentionAt(spec, 1).rope)].theta,
              1e7);
  }
  const DecoderSpec once = SpecOf("dory", R"({"n_recurrent_loops": 1})");
  EXPECT_EQ(once.layers.size(), 3u);
  EXPECT_FALSE(once.shares_layers);
  EXPECT_TRUE(once.layers[1].begins_loop);
  // Nothing to loop over, and what is assumed of that.
  const DecoderSpec none = SpecOf("dory", R"({"n_recurrent_layers": null,
      "n_output_layers": 4})");
  EXPECT_EQ(none.layers.size(), 3u);
  EXPECT_EQ(none.layers[1].loop_norm.kind, NormKind::kNone);
}

// Heads are those of keys, for each chosen expert; layers' norms have an
// epsilon of their own.
TEST(RelativesKeysTest, JetMoesHeads) {
  const DecoderSpec spec = SpecOf("jetmoe", R"({"num_attention_heads": 7,
      "rms_norm_eps": 0.5, "norm_topk_prob": false})");
  const auto& attention =
      std::get<AttentionExpertsSpec>(spec.layers[1].blocks[0].part);
  EXPECT_EQ(attention.num_kv_heads, 2);
  EXPECT_EQ(attention.queries.size(), 3u);
  EXPECT_EQ(attention.queries[2].name,
            "model.layers.1.self_attention.experts.2.input_linear");
  EXPECT_EQ(attention.key_value.n, 64);
  EXPECT_TRUE(attention.routing.normalised);
  EXPECT_EQ(spec.layers[0].blocks[0].pre_norm.epsilon, 1e-6f);
  EXPECT_EQ(spec.final_norm.epsilon, 0.5f);
  EXPECT_EQ(spec.head, "");
}

}  // namespace
}  // namespace inlay
