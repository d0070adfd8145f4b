// MPT (MosaicML, 2023): ALiBi, LayerNorm without biases, no biases at all, an
// MLP without gate.
#include <cmath>
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::Status Unsupported(const char* what) {
  return absl::UnimplementedError(
      FormattedString("config.json: %s is supported", what));
}

// What the published 7B and 30B models do not have. `attention`: attn_config.
absl::Status CheckMptSupported(const Json& json, const Json& attention) {
  INLAY_ASSIGN_OR_RETURN(const bool no_bias, JsonFlag(json, "no_bias", true));
  if (!no_bias) return Unsupported("no_bias is false; only true");
  const Json* scale = JsonFind(json, "logit_scale");
  if (scale != nullptr) return Unsupported("logit_scale is set; only null");
  const Json* type = JsonFind(attention, "attn_type");
  if (type != nullptr && *type != "multihead_attention") {
    return Unsupported(
        "attn_config.attn_type is another than multihead_attention, which");
  }
  for (const auto& [key, message] :
       {std::pair{"qk_ln", "attn_config.qk_ln is true; only false"},
        std::pair{"prefix_lm", "attn_config.prefix_lm is true; only false"}}) {
    INLAY_ASSIGN_OR_RETURN(const bool flag, JsonFlag(attention, key, false));
    if (flag) return Unsupported(message);
  }
  INLAY_ASSIGN_OR_RETURN(const bool alibi, JsonFlag(attention, "alibi", true));
  if (!alibi) return Unsupported("attn_config.alibi is false; only true");
  INLAY_ASSIGN_OR_RETURN(
      const double most,
      JsonNumber(attention, "alibi_bias_max", 8.0, 0.0, 1e9));
  if (most != 8.0) return Unsupported("attn_config.alibi_bias_max is not 8; 8");
  return absl::OkStatus();
}

absl::StatusOr<DecoderConfig> ReadMptConfig(const Json& json) {
  Json named =
      WithUsualNames(json, {{"d_model", "hidden_size"},
                            {"n_layers", "num_hidden_layers"},
                            {"n_heads", "num_attention_heads"},
                            {"max_seq_len", "max_position_embeddings"}});
  DecoderDefaults defaults;
  defaults.vocab_size = 50368;
  INLAY_ASSIGN_OR_RETURN(defaults.hidden_size,
                         JsonInt(named, "hidden_size", 2048, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(const int64_t ratio,
                         JsonInt(json, "expansion_ratio", 4, 1, kMaxHidden));
  if (ratio != 4) return Unsupported("expansion_ratio is not 4; 4");
  defaults.intermediate_size = 4 * defaults.hidden_size;
  named.erase("intermediate_size");
  defaults.num_layers = 24;
  defaults.num_heads = 16;
  defaults.norm_epsilon = 1e-5;
  defaults.epsilon_key = "layer_norm_epsilon";
  defaults.activation = "gelu";
  defaults.activation_key = "";
  defaults.tie_embeddings = true;
  return ReadDecoderConfig(named, defaults);
}

LayerSpec MptLayer(const DecoderConfig& config, int layer, float scale,
                   float clip) {
  const std::string prefix = FormattedString("transformer.blocks.%d.", layer);
  const int64_t hidden = config.hidden_size;
  AttentionSpec attention = LlamaStyleAttention(config, prefix, false, false);
  attention.rope = -1;
  if (scale > 0.0f) attention.scale = scale;
  attention.clip = clip;
  attention.qkv = {{prefix + "attn.Wqkv", 3 * hidden, hidden}};
  attention.output.name = prefix + "attn.out_proj";
  attention.alibi_scale = 1.0f;
  MlpSpec mlp;
  mlp.width = config.intermediate_size;
  mlp.activation = config.activation;
  mlp.input = {{prefix + "ffn.up_proj", mlp.width, hidden}};
  mlp.output = {prefix + "ffn.down_proj", hidden, mlp.width};
  LayerSpec spec = LlamaStyleLayer(config, prefix, NormKind::kLayerNoBias,
                                   std::move(attention), std::move(mlp));
  spec.blocks[0].pre_norm.name = prefix + "norm_1";
  spec.blocks[1].pre_norm.name = prefix + "norm_2";
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeMpt(const Json& json,
                                               ModelBuild& build) {
  const Json none = Json::object();
  const Json* found = JsonFind(json, "attn_config");
  const Json& attention = found == nullptr ? none : *found;
  INLAY_RETURN_IF_ERROR(CheckMptSupported(json, attention));
  INLAY_ASSIGN_OR_RETURN(
      const double scale,
      JsonNumber(attention, "softmax_scale", 0.0, 1e-6, 1e6));
  INLAY_ASSIGN_OR_RETURN(const double clip,
                         JsonNumber(attention, "clip_qkv", 0.0, 0.0, 1e9));
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config, ReadMptConfig(json));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kLayerNoBias);
  spec.optional_prefix = "transformer.";
  spec.embedding = "transformer.wte.weight";
  spec.final_norm.name = "transformer.norm_f";
  for (int i = 0; i < config.num_layers; ++i) {
    spec.layers.push_back(MptLayer(config, i, static_cast<float>(scale),
                                   static_cast<float>(clip)));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
