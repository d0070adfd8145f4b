// GPT-J (Wang and Komatsuzaki, 2021) and CodeGen (arXiv:2203.13474), which is
// the same network: attention and MLP side by side over one LayerNorm, rope on
// the first dimensions of each head, biases in MLP and head alone. What
// CodeGen's files hold as qkv_proj comes apart in core/formats/head_source.h.
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderConfig> ReadGptjConfig(const Json& json) {
  const Json named =
      WithUsualNames(json, {{"n_embd", "hidden_size"},
                            {"n_layer", "num_hidden_layers"},
                            {"n_head", "num_attention_heads"},
                            {"n_positions", "max_position_embeddings"}});
  DecoderDefaults defaults;
  defaults.vocab_size = 50400;
  INLAY_ASSIGN_OR_RETURN(defaults.hidden_size,
                         JsonInt(named, "hidden_size", 4096, 1, kMaxHidden));
  defaults.intermediate_key = "n_inner";
  defaults.intermediate_size = 4 * defaults.hidden_size;
  defaults.num_layers = 28;
  defaults.num_heads = 16;
  defaults.norm_epsilon = 1e-5;
  defaults.epsilon_key = "layer_norm_epsilon";
  defaults.activation = "gelu_new";
  defaults.activation_key = "activation_function";
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(named, defaults));
  if (config.tie_embeddings) {
    return absl::UnimplementedError(
        "config.json: tie_word_embeddings is true; supported here is false: "
        "the head has a bias");
  }
  return config;
}

absl::StatusOr<RopeSpec> ReadGptjRope(const Json& json,
                                      const DecoderConfig& config) {
  RopeSpec rope;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t dim,
      JsonInt(json, "rotary_dim", UnlessNull(json, "rotary_dim", 64), 2,
              kMaxHeadDim));
  if (dim < 2 || dim % 2 != 0 || dim > config.head_dim) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: rotary_dim is %d, allowed: even, from 2 to %d, a head's "
        "dimensions",
        dim, config.head_dim));
  }
  rope.rotary_dim = static_cast<int>(dim);
  return rope;
}

LayerSpec GptjLayer(const DecoderConfig& config, int layer) {
  const std::string prefix = FormattedString("transformer.h.%d.", layer);
  AttentionSpec attention = LlamaStyleAttention(config, prefix, false, false);
  attention.rope_style = RopeStyle::kInterleaved;
  constexpr const char* kParts[] = {"q_proj", "k_proj", "v_proj"};
  for (size_t i = 0; i < 3; ++i) {
    attention.qkv[i].name = prefix + "attn." + kParts[i];
  }
  attention.output.name = prefix + "attn.out_proj";
  MlpSpec mlp;
  mlp.width = config.intermediate_size;
  mlp.activation = config.activation;
  mlp.input = {{prefix + "mlp.fc_in", mlp.width, config.hidden_size, true}};
  mlp.output = {prefix + "mlp.fc_out", config.hidden_size, mlp.width, true};
  LayerSpec spec;
  spec.parallel = true;
  spec.pre_norm = {NormKind::kLayer, prefix + "ln_1", config.norm_epsilon};
  spec.blocks.resize(2);
  spec.blocks[0].part = std::move(attention);
  spec.blocks[1].part = std::move(mlp);
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeGptj(const Json& json,
                                                ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config, ReadGptjConfig(json));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadGptjRope(json, config));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kLayer);
  spec.optional_prefix = "transformer.";
  spec.ropes.push_back(rope);
  spec.embedding = "transformer.wte.weight";
  spec.final_norm.name = "transformer.ln_f";
  spec.head_bias = true;
  for (int i = 0; i < config.num_layers; ++i) {
    spec.layers.push_back(GptjLayer(config, i));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
