// OPT (arXiv:2205.01068): learned positions that begin with row 2, LayerNorm
// with a fixed epsilon, biases, ReLU.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The 350M model, and what no published file has.
absl::Status CheckOptSupported(const Json& json, const DecoderConfig& config) {
  INLAY_ASSIGN_OR_RETURN(const bool before,
                         JsonBool(json, "do_layer_norm_before", true));
  INLAY_ASSIGN_OR_RETURN(const bool removed,
                         JsonBool(json, "_remove_final_layer_norm", false));
  INLAY_ASSIGN_OR_RETURN(const bool affine,
                         JsonBool(json, "layer_norm_elementwise_affine", true));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t projected,
      JsonInt(json, "word_embed_proj_dim", config.hidden_size, 1, kMaxHidden));
  const char* wrong =
      !before   ? "do_layer_norm_before is false; only true"
      : removed ? "_remove_final_layer_norm is true; only false"
      : !affine ? "layer_norm_elementwise_affine is false; only true"
      : projected != config.hidden_size
          ? "word_embed_proj_dim is not hidden_size; only an equal one"
          : nullptr;
  if (wrong == nullptr) return absl::OkStatus();
  return absl::UnimplementedError(
      FormattedString("config.json: %s is supported", wrong));
}

LayerSpec OptLayer(const DecoderConfig& config, int layer, bool bias) {
  const std::string prefix = FormattedString("model.decoder.layers.%d.", layer);
  AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
  attention.output.name = prefix + "self_attn.out_proj";
  attention.rope = -1;
  MlpSpec mlp;
  mlp.width = config.intermediate_size;
  mlp.activation = config.activation;
  mlp.input = {{prefix + "fc1", mlp.width, config.hidden_size, bias}};
  mlp.output = {prefix + "fc2", config.hidden_size, mlp.width, bias};
  LayerSpec spec = LlamaStyleLayer(config, prefix, NormKind::kLayer,
                                   std::move(attention), std::move(mlp));
  spec.blocks[0].pre_norm.name = prefix + "self_attn_layer_norm";
  spec.blocks[1].pre_norm.name = prefix + "final_layer_norm";
  return spec;
}

absl::StatusOr<DecoderSpec> OptSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 50272;
  defaults.hidden_size = 768;
  defaults.intermediate_size = 3072;
  defaults.intermediate_key = "ffn_dim";
  defaults.num_layers = 12;
  defaults.num_heads = 12;
  defaults.activation = "relu";
  defaults.activation_key = "activation_function";
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  config.norm_epsilon = 1e-5f;
  INLAY_RETURN_IF_ERROR(CheckOptSupported(json, config));
  INLAY_ASSIGN_OR_RETURN(const bool bias, JsonBool(json, "enable_bias", true));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kLayer);
  spec.embedding = "model.decoder.embed_tokens.weight";
  spec.position_embedding = "model.decoder.embed_positions.weight";
  spec.position_offset = 2;
  spec.final_norm.name = "model.decoder.final_layer_norm";
  for (int i = 0; i < config.num_layers; ++i) {
    spec.layers.push_back(OptLayer(config, i, bias));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeOpt(const Json& config,
                                               ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, OptSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
