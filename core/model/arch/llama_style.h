// The parts that most decoders share, named as Llama's checkpoints name them:
// model.embed_tokens, model.layers.N.self_attn.q_proj, ..., lm_head. Families
// start from these specs and change what differs.
#ifndef INLAY_CORE_MODEL_ARCH_LLAMA_STYLE_H_
#define INLAY_CORE_MODEL_ARCH_LLAMA_STYLE_H_

#include <string>
#include <string_view>

#include "core/model/decoder_spec.h"
#include "core/model/hf_config.h"

namespace inlay {

// "model.layers.N."
std::string LayerPrefix(int layer);

// Embedding, final norm, head, the longest sequence; no layers and no ropes.
DecoderSpec LlamaStyleDecoder(const DecoderConfig& config, NormKind norm);

// The positions a model takes once its rotary scaling is counted in: YaRN's and
// dynamic NTK's reach original_max * factor even where max_position_embeddings
// still says the shorter length.
int64_t UsablePositions(int64_t max_positions, const RopeSpec& rope);

// q_proj, k_proj, v_proj (with biases where asked) and o_proj; scale
// 1 / sqrt(head_dim), rope 0, no window.
AttentionSpec LlamaStyleAttention(const DecoderConfig& config,
                                  const std::string& prefix, bool qkv_bias,
                                  bool output_bias);

// Norms q_norm and k_norm of the part's heads.
void AddHeadNorms(const DecoderConfig& config, const std::string& prefix,
                  NormKind norm, AttentionSpec* attention);

// gate_proj, up_proj and down_proj.
MlpSpec LlamaStyleMlp(const DecoderConfig& config, const std::string& prefix,
                      bool bias);

// up_proj and down_proj, without a gate.
MlpSpec LlamaStylePlainMlp(const DecoderConfig& config,
                           const std::string& prefix, bool bias);

// Pre-norms input_layernorm and post_attention_layernorm around the two, of any
// kind.
LayerSpec LlamaStyleLayer(const DecoderConfig& config,
                          const std::string& prefix, NormKind norm,
                          PartSpec attention, PartSpec mlp);

// Norms after the two instead: post_attention_layernorm and
// post_feedforward_layernorm.
LayerSpec PostNormLayer(const DecoderConfig& config, const std::string& prefix,
                        NormKind norm, AttentionSpec attention, PartSpec mlp);

// How the families differ that are Llama but for this.
struct LlamaVariant {
  NormKind norm = NormKind::kRms;
  MlpSpec (*make_mlp)(const DecoderConfig&, const std::string&,
                      bool) = LlamaStyleMlp;
  bool biases = false;          // where config.json does not say
  bool may_bias_output = true;  // attention_bias is of o_proj, too
  bool clips = false;           // clip_qkv
  RopeDefaults rope;
  RopeStyle rope_style = RopeStyle::kHalf;
};

// attention_bias, mlp_bias, the rotary embedding, and what ReadDecoderConfig
// has read.
absl::StatusOr<DecoderSpec> LlamaStyleSpec(const Json& json,
                                           const DecoderConfig& config,
                                           const LlamaVariant& variant);

// `json` with the scaling that published files of a family have, Llama 3's by
// `factor`, where config.json is silent. UNIMPLEMENTED where it says null: that
// was none once, and is the published one, with its base, in transformers 5.
absl::StatusOr<Json> WithLlama3Rope(const Json& json, double factor);

// clip_qkv, 0 where it is null or absent (AttentionSpec::clip).
absl::StatusOr<float> ReadClip(const Json& json);

// UNIMPLEMENTED where the activation `key` is not SiLU, in networks whose parts
// have it fixed here (short convolutions).
absl::Status ExpectSilu(const Json& config, std::string_view key);

// One window for the layers Qwen 2 and 3 slide: use_sliding_window,
// sliding_window, max_window_layers, layer_types. [num_layers], 0: none.
absl::StatusOr<std::vector<int>> QwenWindows(const Json& config,
                                             int num_layers);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_ARCH_LLAMA_STYLE_H_
