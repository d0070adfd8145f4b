// StarCoder and SantaCoder (arXiv:2305.06161, arXiv:2301.03988): GPT-2 with one
// head of keys and weights stored output by input. Where there are as many
// heads of keys as of queries, c_attn comes apart in
// core/formats/head_source.h.
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderConfig> ReadBigCodeConfig(const Json& json,
                                                bool multi_query) {
  Json named =
      WithUsualNames(json, {{"n_embd", "hidden_size"},
                            {"n_layer", "num_hidden_layers"},
                            {"n_head", "num_attention_heads"},
                            {"n_positions", "max_position_embeddings"}});
  named.erase("num_key_value_heads");  // multi_query says
  DecoderDefaults defaults;
  defaults.vocab_size = 50257;
  INLAY_ASSIGN_OR_RETURN(defaults.hidden_size,
                         JsonInt(named, "hidden_size", 768, 1, kMaxHidden));
  defaults.intermediate_key = "n_inner";
  defaults.intermediate_size = 4 * defaults.hidden_size;
  defaults.num_layers = 12;
  defaults.num_heads = 12;
  defaults.num_kv_heads = multi_query ? 1 : 0;
  defaults.max_positions = 1024;
  defaults.norm_epsilon = 1e-5;
  defaults.epsilon_key = "layer_norm_epsilon";
  defaults.activation = "gelu_pytorch_tanh";
  defaults.activation_key = "activation_function";
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(const bool cross,
                         JsonBool(json, "add_cross_attention", false));
  if (cross) {
    return absl::UnimplementedError(
        "config.json: add_cross_attention is true; cross attention is not "
        "supported");
  }
  return ReadDecoderConfig(named, defaults);
}

LayerSpec BigCodeLayer(const DecoderConfig& config, int layer,
                       bool multi_query) {
  const std::string prefix = FormattedString("transformer.h.%d.", layer);
  const int64_t hidden = config.hidden_size;
  AttentionSpec attention = LlamaStyleAttention(config, prefix, true, true);
  attention.rope = -1;
  if (multi_query) {
    const int64_t rows = attention.qkv[0].n + 2 * attention.qkv[1].n;
    attention.qkv = {{prefix + "attn.c_attn", rows, hidden, true}};
  } else {
    constexpr const char* kParts[] = {"q_proj", "k_proj", "v_proj"};
    for (size_t i = 0; i < 3; ++i) {
      attention.qkv[i].name = prefix + "attn." + kParts[i];
    }
  }
  attention.output.name = prefix + "attn.c_proj";
  MlpSpec mlp;
  mlp.width = config.intermediate_size;
  mlp.activation = config.activation;
  mlp.input = {{prefix + "mlp.c_fc", mlp.width, hidden, true}};
  mlp.output = {prefix + "mlp.c_proj", hidden, mlp.width, true};
  LayerSpec spec = LlamaStyleLayer(config, prefix, NormKind::kLayer,
                                   std::move(attention), std::move(mlp));
  spec.blocks[0].pre_norm.name = prefix + "ln_1";
  spec.blocks[1].pre_norm.name = prefix + "ln_2";
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeGptBigCode(const Json& json,
                                                      ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const bool multi_query,
                         JsonBool(json, "multi_query", true));
  INLAY_ASSIGN_OR_RETURN(const bool scales,
                         JsonBool(json, "scale_attn_weights", true));
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadBigCodeConfig(json, multi_query));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kLayer);
  spec.optional_prefix = "transformer.";
  spec.embedding = "transformer.wte.weight";
  spec.position_embedding = "transformer.wpe.weight";
  spec.final_norm.name = "transformer.ln_f";
  for (int i = 0; i < config.num_layers; ++i) {
    spec.layers.push_back(BigCodeLayer(config, i, multi_query));
    if (scales) continue;
    std::get<AttentionSpec>(spec.layers.back().blocks[0].part).scale = 1.0f;
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
