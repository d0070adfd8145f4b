// GPT-NeoX (arXiv:2204.06745) and Pythia: attention and MLP side by side, each
// with a LayerNorm of its own, rope on a quarter of each head. What files hold
// as query_key_value comes apart in core/formats/head_source.h.
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
                                      const DecoderConfig& config) {
  INLAY_RETURN_IF_ERROR(
      JsonNumber(json, "rotary_emb_base", 1e4, 1.0, 1e15).status());
  INLAY_RETURN_IF_ERROR(
      JsonNumber(json, "rotary_pct", 0.25, 0.0, 1.0).status());
  const Json usual =
      WithUsualNames(json, {{"rotary_emb_base", "rope_theta"},
                            {"rotary_pct", "partial_rotary_factor"}});
  return ReadRope(usual, config, {.partial = 0.25});
}

LayerSpec NeoxLayer(const DecoderConfig& config, int layer, bool bias,
                    bool parallel) {
  const std::string prefix = FormattedString("gpt_neox.layers.%d.", layer);
  const int64_t hidden = config.hidden_size;
  AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
  constexpr const char* kParts[] = {"q_proj", "k_proj", "v_proj"};
  for (size_t i = 0; i < 3; ++i) {
    attention.qkv[i].name = prefix + "attention." + kParts[i];
  }
  attention.output.name = prefix + "attention.dense";
  MlpSpec mlp;
  mlp.width = config.intermediate_size;
  mlp.activation = config.activation;
  mlp.input = {{prefix + "mlp.dense_h_to_4h", mlp.width, hidden, true}};
  mlp.output = {prefix + "mlp.dense_4h_to_h", hidden, mlp.width, true};
  LayerSpec spec = LlamaStyleLayer(config, prefix, NormKind::kLayer,
                                   std::move(attention), std::move(mlp));
  spec.parallel = parallel;
  return spec;
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
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadNeoxRope(json, config));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kLayer);
  spec.optional_prefix = "gpt_neox.";
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  spec.embedding = "gpt_neox.embed_in.weight";
  spec.final_norm.name = "gpt_neox.final_layer_norm";
  (config.tie_embeddings ? spec.tied_head : spec.head) = "embed_out";
  for (int i = 0; i < config.num_layers; ++i) {
    spec.layers.push_back(NeoxLayer(config, i, bias, parallel));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeGptNeox(const Json& config,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, GptNeoxSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
