// BLOOM (arXiv:2211.05100): ALiBi, LayerNorm on the embedding and before parts,
// biases. What files hold as query_key_value comes apart in
// core/formats/head_source.h.
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderConfig> ReadBloomConfig(const Json& json) {
  // Longer sequences than it was trained on are open to ALiBi; published files
  // say how long those were.
  Json named =
      WithUsualNames(json, {{"n_embed", "hidden_size"},
                            {"n_layer", "num_hidden_layers"},
                            {"n_head", "num_attention_heads"},
                            {"seq_length", "max_position_embeddings"}});
  DecoderDefaults defaults;
  defaults.vocab_size = 250880;
  INLAY_ASSIGN_OR_RETURN(defaults.hidden_size,
                         JsonInt(named, "hidden_size", 64, 1, kMaxHidden));
  defaults.intermediate_size = 4 * defaults.hidden_size;
  named.erase("intermediate_size");  // not a key of this family's
  defaults.num_layers = 2;
  defaults.num_heads = 8;
  defaults.norm_epsilon = 1e-5;
  defaults.epsilon_key = "layer_norm_epsilon";
  defaults.activation = "gelu_new";
  defaults.activation_key = "";
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(
      const bool normalised,
      JsonBool(json, "apply_residual_connection_post_layernorm", false));
  if (normalised) {
    return absl::UnimplementedError(
        "config.json: apply_residual_connection_post_layernorm is true; only "
        "false is supported");
  }
  return ReadDecoderConfig(named, defaults);
}

LayerSpec BloomLayer(const DecoderConfig& config, int layer) {
  const std::string prefix = FormattedString("transformer.h.%d.", layer);
  const std::string name = prefix + "self_attention.";
  AttentionSpec attention = LlamaStyleAttention(config, prefix, true, true);
  attention.rope = -1;
  constexpr const char* kParts[] = {"q_proj", "k_proj", "v_proj"};
  for (size_t i = 0; i < 3; ++i) attention.qkv[i].name = name + kParts[i];
  attention.output.name = name + "dense";
  attention.alibi_scale = 1.0f;
  MlpSpec mlp;
  mlp.width = config.intermediate_size;
  mlp.activation = config.activation;
  mlp.input = {
      {prefix + "mlp.dense_h_to_4h", mlp.width, config.hidden_size, true}};
  mlp.output = {prefix + "mlp.dense_4h_to_h", config.hidden_size, mlp.width,
                true};
  return LlamaStyleLayer(config, prefix, NormKind::kLayer, std::move(attention),
                         std::move(mlp));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeBloom(const Json& json,
                                                 ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config, ReadBloomConfig(json));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kLayer);
  spec.optional_prefix = "transformer.";
  spec.embedding = "transformer.word_embeddings.weight";
  spec.embedding_norm = {NormKind::kLayer,
                         "transformer.word_embeddings_layernorm",
                         config.norm_epsilon};
  spec.final_norm.name = "transformer.ln_f";
  for (int i = 0; i < config.num_layers; ++i) {
    spec.layers.push_back(BloomLayer(config, i));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
