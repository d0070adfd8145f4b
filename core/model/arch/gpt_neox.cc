// GPT-NeoX (arXiv:2204.06745) and Pythia: attention and MLP side by side, each
// with a LayerNorm of its own, rope on a quarter of each head. GPT-NeoX
// Japanese (ABEJA, 2022): one after the other, no biases but one, rope on whole
// heads. Persimmon (Adept, 2023): one after the other, LayerNorms of q and k of
// each head, ReLU squared, rope on half of each head. What files hold as
// query_key_value comes apart in core/formats/head_source.h. Source of names
// and defaults: transformers' configurations.
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The family's own names come before the usual ones, but not before what is in
// rope_parameters.
absl::StatusOr<RopeSpec> ReadNeoxRope(const Json& json,
                                      const DecoderConfig& config,
                                      double partial) {
  INLAY_RETURN_IF_ERROR(
      JsonNumber(json, "rotary_emb_base", 1e4, 1.0, 1e15).status());
  INLAY_RETURN_IF_ERROR(
      JsonNumber(json, "rotary_pct", partial, 0.0, 1.0).status());
  const Json usual =
      WithUsualNames(json, {{"rotary_emb_base", "rope_theta"},
                            {"rotary_pct", "partial_rotary_factor"}});
  return ReadRope(usual, config, {.partial = partial});
}

struct NeoxBiases {
  bool qkv = true;
  bool output = true;
  bool mlp = true;
};

// One after the other. `part`: attention's name.
LayerSpec NeoxLayer(const DecoderConfig& config, const std::string& prefix,
                    const std::string& part, const NeoxBiases& biases) {
  const int64_t hidden = config.hidden_size;
  AttentionSpec attention =
      LlamaStyleAttention(config, prefix, biases.qkv, biases.output);
  constexpr const char* kParts[] = {"q_proj", "k_proj", "v_proj"};
  for (size_t i = 0; i < 3; ++i) {
    attention.qkv[i].name = prefix + part + kParts[i];
  }
  attention.output.name = prefix + part + "dense";
  MlpSpec mlp;
  mlp.width = config.intermediate_size;
  mlp.activation = config.activation;
  mlp.input = {{prefix + "mlp.dense_h_to_4h", mlp.width, hidden, biases.mlp}};
  mlp.output = {prefix + "mlp.dense_4h_to_h", hidden, mlp.width, biases.mlp};
  return LlamaStyleLayer(config, prefix, NormKind::kLayer, std::move(attention),
                         std::move(mlp));
}

// Of families whose heads make up the width: without decoders' keys that mean
// nothing to them.
absl::StatusOr<DecoderConfig> ReadEvenHeads(const Json& json,
                                            const DecoderDefaults& defaults) {
  Json own = json;
  own.erase("num_key_value_heads");
  own.erase("head_dim");
  return ReadDecoderConfig(own, defaults);
}

absl::StatusOr<DecoderSpec> GptNeoxSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 50432;
  defaults.hidden_size = 6144;
  defaults.intermediate_size = 24576;
  defaults.num_layers = 44;
  defaults.num_heads = 64;
  defaults.norm_epsilon = 1e-5;
  defaults.epsilon_key = "layer_norm_eps";
  defaults.activation = "gelu";
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", true));
  INLAY_ASSIGN_OR_RETURN(const bool parallel,
                         JsonBool(json, "use_parallel_residual", true));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadNeoxRope(json, config, 0.25));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kLayer);
  spec.optional_prefix = "gpt_neox.";
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  spec.embedding = "gpt_neox.embed_in.weight";
  spec.final_norm.name = "gpt_neox.final_layer_norm";
  (config.tie_embeddings ? spec.tied_head : spec.head) = "embed_out";
  for (int i = 0; i < config.num_layers; ++i) {
    spec.layers.push_back(
        NeoxLayer(config, FormattedString("gpt_neox.layers.%d.", i),
                  "attention.", {.qkv = bias, .output = bias}));
    spec.layers.back().parallel = parallel;
  }
  return spec;
}

absl::StatusOr<DecoderSpec> GptNeoxJapaneseSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.hidden_size = 2560;
  defaults.norm_epsilon = 1e-5;
  defaults.epsilon_key = "layer_norm_eps";
  defaults.activation = "gelu";
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(DecoderConfig config, ReadEvenHeads(json, defaults));
  constexpr int64_t kMostTimes = 64;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t times,
      JsonInt(json, "intermediate_multiple_size", 4, 1, kMostTimes));
  config.intermediate_size = times * config.hidden_size;
  // Not read under these names.
  Json own = json;
  own.erase("rope_theta");
  own.erase("partial_rotary_factor");
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadNeoxRope(own, config, 1.0));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kLayer);
  const std::string name = "gpt_neox_japanese.";
  spec.optional_prefix = name;
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  spec.embedding = name + "embed_in.weight";
  spec.final_norm.name = name + "final_layer_norm";
  (config.tie_embeddings ? spec.tied_head : spec.head) = "embed_out";
  for (int i = 0; i < config.num_layers; ++i) {
    const bool is_last = i == config.num_layers - 1;
    spec.layers.push_back(NeoxLayer(
        config, FormattedString("%slayers.%d.", name, i), "attention.",
        {.qkv = false, .output = is_last, .mlp = false}));
  }
  return spec;
}

absl::StatusOr<DecoderSpec> PersimmonSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 262144;
  defaults.intermediate_size = 16384;
  defaults.num_layers = 36;
  defaults.num_heads = 64;
  defaults.max_positions = 16384;
  defaults.norm_epsilon = 1e-5;
  defaults.epsilon_key = "layer_norm_eps";
  defaults.activation = "relu2";
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadEvenHeads(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const bool head_norms,
                         JsonBool(json, "qk_layernorm", true));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(json, config, {.partial = 0.5}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kLayer);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  spec.final_norm.name = "model.final_layernorm";
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    LayerSpec layer = NeoxLayer(config, prefix, "self_attn.", {});
    if (head_norms) {
      auto& attention = std::get<AttentionSpec>(layer.blocks[0].part);
      AddHeadNorms(config, prefix, NormKind::kLayer, &attention);
      attention.q_norm.name = prefix + "self_attn.q_layernorm";
      attention.k_norm.name = prefix + "self_attn.k_layernorm";
    }
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeGptNeox(const Json& config,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, GptNeoxSpec(config));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeGptNeoxJapanese(const Json& config,
                                                           ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, GptNeoxJapaneseSpec(config));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakePersimmon(const Json& config,
                                                     ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, PersimmonSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
