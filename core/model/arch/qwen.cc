// Qwen 1 (arXiv:2309.16609): Llama under GPT-2's names, with biases of q, k and
// v alone and an MLP whose gate is its second matrix. What the published code
// does beyond seq_length is not done: the context ends there
// (core/formats/qwen_config.h). Source: the published modeling_qwen.py.
#include <string>
#include <utility>

#include "core/formats/qwen_config.h"
#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderConfig> ReadQwenConfig(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 151936;
  defaults.intermediate_size = 22016;
  defaults.head_dim = 128;
  defaults.max_positions = 8192;
  INLAY_ASSIGN_OR_RETURN(DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  if (int64_t{config.num_heads} * config.head_dim != config.hidden_size) {
    return absl::UnimplementedError(FormattedString(
        "config.json: kv_channels is %d; supported here are heads that make up "
        "hidden_size, %d",
        config.head_dim, config.hidden_size));
  }
  if (config.intermediate_size % 2 != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: intermediate_size is %d; it must be even: each of two "
        "matrices has half of it",
        config.intermediate_size));
  }
  config.intermediate_size /= 2;
  config.activation = Activation::kSilu;  // which no key names
  return config;
}

LayerSpec QwenLayer(const DecoderConfig& config, int layer) {
  const std::string prefix = FormattedString("transformer.h.%d.", layer);
  AttentionSpec attention = LlamaStyleAttention(config, prefix, true, false);
  attention.qkv = {{prefix + "attn.c_attn", 3 * config.hidden_size,
                    config.hidden_size, true}};
  attention.output.name = prefix + "attn.c_proj";
  MlpSpec mlp = LlamaStyleMlp(config, prefix, false);
  mlp.input[0].name = prefix + "mlp.w2";
  mlp.input[1].name = prefix + "mlp.w1";
  mlp.output.name = prefix + "mlp.c_proj";
  LayerSpec spec = LlamaStyleLayer(config, prefix, NormKind::kRms,
                                   std::move(attention), std::move(mlp));
  spec.blocks[0].pre_norm.name = prefix + "ln_1";
  spec.blocks[1].pre_norm.name = prefix + "ln_2";
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeQwen(const Json& json,
                                                ModelBuild& build) {
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "no_bias", true));
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "scale_attn_weights", true));
  INLAY_ASSIGN_OR_RETURN(const Json usual, WithUsualQwenNames(json));
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config, ReadQwenConfig(usual));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(usual, config, {.partial = 1.0}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.optional_prefix = "transformer.";
  spec.embedding = "transformer.wte.weight";
  spec.final_norm.name = "transformer.ln_f";
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    spec.layers.push_back(QwenLayer(config, i));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
