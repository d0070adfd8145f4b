// OPT (arXiv:2205.01068): learned positions that begin with row 2, LayerNorm
// with a fixed epsilon, biases, ReLU. The 350M model has its norms after the
// sums, none at the end, and a narrower embedding. BioGPT (Luo et al., 2022):
// the same with scaled embeddings and GELU. XGLM (arXiv:2112.10668): the same
// with positions that are computed (core/formats/sinusoid_source.h). Source of
// names and defaults: transformers' configurations.
#include <cmath>
#include <utility>

#include "core/formats/sinusoid_source.h"
#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct OptConfig {
  DecoderConfig decoder;
  bool bias = true;
  bool norms_before = true;
  bool final_norm = true;
  int64_t embedding_width = 0;
};

absl::StatusOr<OptConfig> ReadOptConfig(const Json& json,
                                        const DecoderDefaults& defaults) {
  OptConfig out;
  INLAY_ASSIGN_OR_RETURN(out.decoder, ReadDecoderConfig(json, defaults));
  out.decoder.norm_epsilon = 1e-5f;
  INLAY_ASSIGN_OR_RETURN(out.bias, JsonBool(json, "enable_bias", true));
  INLAY_ASSIGN_OR_RETURN(out.norms_before,
                         JsonBool(json, "do_layer_norm_before", true));
  INLAY_ASSIGN_OR_RETURN(const bool removed,
                         JsonBool(json, "_remove_final_layer_norm", false));
  out.final_norm = out.norms_before && !removed;
  INLAY_ASSIGN_OR_RETURN(const bool affine,
                         JsonBool(json, "layer_norm_elementwise_affine", true));
  if (!affine) {
    return absl::UnimplementedError(
        "config.json: layer_norm_elementwise_affine is false; only true is "
        "supported");
  }
  const int64_t hidden = out.decoder.hidden_size;
  INLAY_ASSIGN_OR_RETURN(
      out.embedding_width,
      JsonInt(json, "word_embed_proj_dim", hidden, 1, kMaxHidden));
  if (out.embedding_width > hidden) {
    return absl::UnimplementedError(FormattedString(
        "config.json: word_embed_proj_dim is %d, allowed: at most hidden_size, "
        "%d",
        out.embedding_width, hidden));
  }
  return out;
}

// `network`: what its tensors' names begin with.
LayerSpec OptLayer(const OptConfig& opt, const std::string& network,
                   int layer) {
  const DecoderConfig& config = opt.decoder;
  const bool bias = opt.bias;
  const std::string prefix = FormattedString("%slayers.%d.", network, layer);
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
  if (opt.norms_before) return spec;
  for (BlockSpec& block : spec.blocks) {
    block.sum_norm = std::exchange(block.pre_norm, NormSpec());
  }
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
  INLAY_ASSIGN_OR_RETURN(const OptConfig config, ReadOptConfig(json, defaults));
  DecoderSpec spec = LlamaStyleDecoder(config.decoder, NormKind::kLayer);
  spec.embedding = "model.decoder.embed_tokens.weight";
  spec.position_embedding = "model.decoder.embed_positions.weight";
  spec.position_offset = 2;
  spec.final_norm.name = "model.decoder.final_layer_norm";
  if (!config.final_norm) spec.final_norm = NormSpec();
  const int64_t hidden = config.decoder.hidden_size;
  if (config.embedding_width != hidden) {
    spec.embedding_projection = EmbeddingProjectionSpec{
        .input = LinearSpec{"model.decoder.project_in", hidden,
                            config.embedding_width},
        .output = LinearSpec{"model.decoder.project_out",
                             config.embedding_width, hidden}};
  }
  for (int i = 0; i < config.decoder.num_layers; ++i) {
    spec.layers.push_back(OptLayer(config, "model.decoder.", i));
  }
  return spec;
}

// What BioGPT and XGLM have in common.
absl::StatusOr<DecoderSpec> ScaledOptSpec(Json json,
                                          const DecoderDefaults& defaults,
                                          const std::string& network) {
  json.erase("num_key_value_heads");
  json.erase("head_dim");
  OptConfig config;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadDecoderConfig(json, defaults));
  // Whatever layer_norm_eps says: PyTorch's own.
  config.decoder.norm_epsilon = 1e-5f;
  INLAY_ASSIGN_OR_RETURN(const bool scales,
                         JsonBool(json, "scale_embedding", true));
  DecoderSpec spec = LlamaStyleDecoder(config.decoder, NormKind::kLayer);
  spec.optional_prefix = network;
  spec.embedding = network + "embed_tokens.weight";
  spec.position_embedding = network + "embed_positions.weight";
  spec.position_offset = 2;
  spec.final_norm.name = network + "layer_norm";
  if (scales) {
    spec.embedding_scale =
        std::sqrt(static_cast<float>(config.decoder.hidden_size));
  }
  for (int i = 0; i < config.decoder.num_layers; ++i) {
    spec.layers.push_back(OptLayer(config, network, i));
  }
  return spec;
}

absl::StatusOr<DecoderSpec> BioGptSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 42384;
  defaults.hidden_size = 1024;
  defaults.intermediate_size = 4096;
  defaults.num_layers = 24;
  defaults.num_heads = 16;
  defaults.max_positions = 1024;
  defaults.activation = "gelu";
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec,
                         ScaledOptSpec(json, defaults, "biogpt."));
  (spec.head.empty() ? spec.tied_head : spec.head) = "output_projection";
  return spec;
}

absl::StatusOr<DecoderSpec> XglmSpec(const Json& json) {
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "add_cross_attention", false));
  DecoderDefaults defaults;
  defaults.vocab_size = 256008;
  defaults.hidden_size = 1024;
  defaults.intermediate_size = 4096;
  defaults.intermediate_key = "ffn_dim";
  defaults.num_layers = 24;
  defaults.num_heads = 16;
  defaults.activation = "gelu";
  defaults.activation_key = "activation_function";
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(
      DecoderSpec spec,
      ScaledOptSpec(
          WithUsualNames(json, {{"d_model", "hidden_size"},
                                {"num_layers", "num_hidden_layers"},
                                {"attention_heads", "num_attention_heads"}}),
          defaults, "model."));
  spec.position_embedding = std::string(kComputedPositions);
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeBioGpt(const Json& config,
                                                  ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, BioGptSpec(config));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeXglm(const Json& config,
                                                ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, XglmSpec(config));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeOpt(const Json& config,
                                               ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, OptSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
