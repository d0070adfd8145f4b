// Falcon (arXiv:2311.16867): 7B (one head of keys, attention and MLP side by
// side over one LayerNorm), 40B, 180B and Falcon 2 11B ("new decoder
// architecture": heads in groups, two LayerNorms or one), and the RefinedWeb
// models (ALiBi, one part after the other). What files hold as query_key_value
// comes apart in core/formats/head_source.h, but for one head of keys, where
// it is q, k and v already.
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct FalconConfig {
  DecoderConfig decoder;
  bool grouped = false;  // new_decoder_architecture
  bool multi_query = true;
  bool parallel = true;
  bool bias = false;
  bool alibi = false;
  bool shares_norm = true;  // of parallel parts
};

absl::StatusOr<DecoderConfig> ReadFalconDecoder(const Json& json,
                                                const FalconConfig& falcon) {
  Json named = WithUsualNames(json, {{"n_embed", "hidden_size"}});
  DecoderDefaults defaults;
  defaults.vocab_size = 65024;
  INLAY_ASSIGN_OR_RETURN(defaults.hidden_size,
                         JsonInt(named, "hidden_size", 4544, 1, kMaxHidden));
  defaults.intermediate_key = "ffn_hidden_size";
  defaults.intermediate_size = 4 * defaults.hidden_size;
  defaults.num_heads = 71;
  defaults.norm_epsilon = 1e-5;
  defaults.epsilon_key = "layer_norm_epsilon";
  defaults.activation = "gelu";
  defaults.activation_key = "activation";
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t heads,
      JsonInt(json, "num_attention_heads", defaults.num_heads, 1, kMaxHeads));
  INLAY_ASSIGN_OR_RETURN(const int64_t kv_heads,
                         JsonInt(json, "num_kv_heads", heads, 1, kMaxHeads));
  if (!falcon.grouped && !falcon.multi_query && kv_heads != heads) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: num_kv_heads is %d, allowed without multi_query: %d, "
        "num_attention_heads",
        kv_heads, heads));
  }
  const bool is_single = !falcon.grouped && falcon.multi_query;
  named["num_key_value_heads"] = is_single ? 1 : kv_heads;
  return ReadDecoderConfig(named, defaults);
}

// How many norms there are before parallel parts.
absl::Status ReadFalconNorms(const Json& json, FalconConfig* falcon) {
  INLAY_ASSIGN_OR_RETURN(
      const int64_t norms,
      JsonInt(json, "num_ln_in_parallel_attn", falcon->grouped ? 2 : 1, 0, 2));
  if (falcon->grouped ? !falcon->parallel || norms == 0
                      : falcon->parallel && norms == 2) {
    return absl::UnimplementedError(FormattedString(
        "config.json: parallel_attn is %s and num_ln_in_parallel_attn %d, "
        "supported here with new_decoder_architecture: true and 1 or 2; "
        "without: at most 1",
        falcon->parallel ? "true" : "false", norms));
  }
  falcon->shares_norm = norms != 2;
  return absl::OkStatus();
}

absl::StatusOr<FalconConfig> ReadFalconConfig(const Json& json) {
  FalconConfig out;
  INLAY_ASSIGN_OR_RETURN(out.grouped,
                         JsonFlag(json, "new_decoder_architecture", false));
  INLAY_ASSIGN_OR_RETURN(out.multi_query, JsonFlag(json, "multi_query", true));
  INLAY_ASSIGN_OR_RETURN(out.parallel, JsonFlag(json, "parallel_attn", true));
  INLAY_ASSIGN_OR_RETURN(out.bias, JsonFlag(json, "bias", false));
  INLAY_ASSIGN_OR_RETURN(out.alibi, JsonFlag(json, "alibi", false));
  INLAY_RETURN_IF_ERROR(ReadFalconNorms(json, &out));
  INLAY_ASSIGN_OR_RETURN(out.decoder, ReadFalconDecoder(json, out));
  return out;
}

AttentionSpec FalconAttention(const FalconConfig& falcon,
                              const std::string& prefix) {
  const DecoderConfig& config = falcon.decoder;
  AttentionSpec spec =
      LlamaStyleAttention(config, prefix, falcon.bias, falcon.bias);
  const std::string name = prefix + "self_attention.";
  spec.output.name = name + "dense";
  if (!falcon.grouped && falcon.multi_query) {
    const int64_t rows = spec.qkv[0].n + 2 * spec.qkv[1].n;
    spec.qkv = {
        {name + "query_key_value", rows, config.hidden_size, falcon.bias}};
  } else {
    constexpr const char* kParts[] = {"q_proj", "k_proj", "v_proj"};
    for (size_t i = 0; i < 3; ++i) spec.qkv[i].name = name + kParts[i];
  }
  if (!falcon.alibi) return spec;
  spec.rope = -1;
  spec.alibi_scale = spec.scale;  // scores are scaled when they are in
  return spec;
}

LayerSpec FalconLayer(const FalconConfig& falcon, int layer) {
  const DecoderConfig& config = falcon.decoder;
  const std::string prefix = FormattedString("transformer.h.%d.", layer);
  MlpSpec mlp;
  mlp.width = config.intermediate_size;
  mlp.activation = config.activation;
  mlp.input = {{prefix + "mlp.dense_h_to_4h", mlp.width, config.hidden_size,
                falcon.bias}};
  mlp.output = {prefix + "mlp.dense_4h_to_h", config.hidden_size, mlp.width,
                falcon.bias};
  LayerSpec spec =
      LlamaStyleLayer(config, prefix, NormKind::kLayer,
                      FalconAttention(falcon, prefix), std::move(mlp));
  spec.parallel = falcon.grouped || falcon.parallel;
  if (!spec.parallel) return spec;
  if (falcon.shares_norm) {
    spec.pre_norm = std::exchange(spec.blocks[0].pre_norm, NormSpec());
    spec.blocks[1].pre_norm = NormSpec();
  } else {
    spec.blocks[0].pre_norm.name = prefix + "ln_attn";
    spec.blocks[1].pre_norm.name = prefix + "ln_mlp";
  }
  return spec;
}

absl::StatusOr<DecoderSpec> FalconSpec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const FalconConfig falcon, ReadFalconConfig(json));
  const DecoderConfig& config = falcon.decoder;
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kLayer);
  spec.optional_prefix = "transformer.";
  spec.embedding = "transformer.word_embeddings.weight";
  spec.final_norm.name = "transformer.ln_f";
  if (!falcon.alibi) {
    INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
    spec.max_positions = UsablePositions(config.max_positions, rope);
    spec.ropes.push_back(rope);
  }
  for (int i = 0; i < config.num_layers; ++i) {
    spec.layers.push_back(FalconLayer(falcon, i));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeFalcon(const Json& config,
                                                  ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, FalconSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
