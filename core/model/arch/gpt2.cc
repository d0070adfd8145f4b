// GPT-2 (Radford et al., 2019): learned positions, LayerNorm, fused q, k, v,
// weights stored input by output.
#include <cmath>

#include "core/model/arch.h"
#include "core/model/decoder.h"
#include "core/model/hf_config.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct Gpt2Config {
  int64_t vocab_size = 0;
  int64_t positions = 0;
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t inner = 0;
  float epsilon = 0.0f;
  Activation activation = Activation::kGeluTanh;
  bool scale_by_dim = true;
  bool scale_by_layer = false;
  bool tied = true;
};

absl::Status CheckSupported(const Json& json, const Gpt2Config& config) {
  if (config.hidden % config.heads != 0 ||
      config.hidden / config.heads > kMaxHeadDim) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: n_embd is %d with n_head %d; it must be a multiple, with "
        "at most %d dimensions a head",
        config.hidden, config.heads, kMaxHeadDim));
  }
  INLAY_ASSIGN_OR_RETURN(const bool cross,
                         JsonBool(json, "add_cross_attention", false));
  if (cross) {
    return absl::UnimplementedError(
        "config.json: add_cross_attention is true; cross attention is not "
        "supported");
  }
  return absl::OkStatus();
}

absl::StatusOr<Gpt2Config> ReadGpt2Config(const Json& json) {
  Gpt2Config out;
  INLAY_ASSIGN_OR_RETURN(out.vocab_size,
                         JsonInt(json, "vocab_size", 50257, 1, kMaxVocab));
  INLAY_ASSIGN_OR_RETURN(out.positions,
                         JsonInt(json, "n_positions", 1024, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(out.hidden,
                         JsonInt(json, "n_embd", 768, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(out.layers,
                         JsonInt(json, "n_layer", 12, 1, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(out.heads, JsonInt(json, "n_head", 12, 1, kMaxHeads));
  INLAY_ASSIGN_OR_RETURN(
      out.inner, JsonInt(json, "n_inner", 4 * out.hidden, 1, 4 * kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(
      const double epsilon,
      JsonNumber(json, "layer_norm_epsilon", 1e-5, 0.0, 1.0));
  out.epsilon = static_cast<float>(epsilon);
  INLAY_ASSIGN_OR_RETURN(
      out.activation, ReadActivation(json, "activation_function", "gelu_new"));
  INLAY_ASSIGN_OR_RETURN(out.scale_by_dim,
                         JsonBool(json, "scale_attn_weights", true));
  INLAY_ASSIGN_OR_RETURN(
      out.scale_by_layer,
      JsonBool(json, "scale_attn_by_inverse_layer_idx", false));
  INLAY_ASSIGN_OR_RETURN(out.tied, JsonBool(json, "tie_word_embeddings", true));
  INLAY_RETURN_IF_ERROR(CheckSupported(json, out));
  return out;
}

LayerSpec Gpt2Layer(const Gpt2Config& config, int layer) {
  const std::string prefix = FormattedString("transformer.h.%d.", layer);
  const int64_t hidden = config.hidden;
  AttentionSpec attention;
  attention.num_heads = static_cast<int>(config.heads);
  attention.num_kv_heads = attention.num_heads;
  attention.head_dim = static_cast<int>(hidden / config.heads);
  attention.qkv = {{prefix + "attn.c_attn", 3 * hidden, hidden, true, true}};
  attention.output = {prefix + "attn.c_proj", hidden, hidden, true, true};
  if (config.scale_by_dim) {
    attention.scale = 1.0f / std::sqrt(static_cast<float>(attention.head_dim));
  }
  if (config.scale_by_layer) {
    attention.scale /= static_cast<float>(layer + 1);
  }
  MlpSpec mlp;
  mlp.width = config.inner;
  mlp.activation = config.activation;
  mlp.input = {{prefix + "mlp.c_fc", config.inner, hidden, true, true}};
  mlp.output = {prefix + "mlp.c_proj", hidden, config.inner, true, true};

  LayerSpec spec;
  spec.blocks.resize(2);
  spec.blocks[0].pre_norm = {NormKind::kLayer, prefix + "ln_1", config.epsilon};
  spec.blocks[0].part = attention;
  spec.blocks[1].pre_norm = {NormKind::kLayer, prefix + "ln_2", config.epsilon};
  spec.blocks[1].part = mlp;
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeGpt2(const Json& json,
                                                ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const Gpt2Config config, ReadGpt2Config(json));
  DecoderSpec spec;
  spec.optional_prefix = "transformer.";
  spec.vocab_size = config.vocab_size;
  spec.hidden_size = config.hidden;
  spec.max_positions = config.positions;
  spec.embedding = "transformer.wte.weight";
  spec.position_embedding = "transformer.wpe.weight";
  for (int i = 0; i < config.layers; ++i) {
    spec.layers.push_back(Gpt2Layer(config, i));
  }
  spec.final_norm = {NormKind::kLayer, "transformer.ln_f", config.epsilon};
  (config.tied ? spec.tied_head : spec.head) = "lm_head";
  return BuildDecoder(spec, build);
}

}  // namespace inlay
