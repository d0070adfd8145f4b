// Baichuan and Baichuan 2 (arXiv:2309.10305): Llama but for q, k and v in one
// matrix, which comes apart in core/formats/head_source.h, and, in the models
// of 13B, ALiBi instead of rope. Baichuan 2's head has rows of length 1
// (core/formats/norm_head_source.h). Which model it is no published key says
// (core/formats/baichuan_config.h). Source: the published modeling_baichuan.py
// of each.
#include <string>
#include <utility>

#include "core/formats/baichuan_config.h"
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderConfig> ReadBaichuanConfig(const Json& json) {
  // What 13B calls it.
  Json named = json;
  if (JsonFind(named, "max_position_embeddings") == nullptr) {
    named =
        WithUsualNames(json, {{"model_max_length", "max_position_embeddings"}});
  }
  DecoderDefaults defaults;
  defaults.vocab_size = 64000;
  defaults.max_positions = 4096;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(named, defaults));
  if (config.num_kv_heads == config.num_heads &&
      int64_t{config.num_heads} * config.head_dim == config.hidden_size) {
    return config;
  }
  return absl::UnimplementedError(FormattedString(
      "config.json: num_key_value_heads is %d and head_dim %d; supported here "
      "are as many heads of keys as the %d of queries, which make up "
      "hidden_size",
      config.num_kv_heads, config.head_dim, config.num_heads));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeBaichuan(const Json& json,
                                                    ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config, ReadBaichuanConfig(json));
  INLAY_ASSIGN_OR_RETURN(const bool alibi, BaichuanHasAlibi(json));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  if (!alibi) {
    spec.max_positions = UsablePositions(config.max_positions, rope);
    spec.ropes.push_back(rope);
  }
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, false, false);
    if (alibi) {
      attention.rope = -1;
      attention.alibi_scale = 1.0f;
    }
    spec.layers.push_back(
        LlamaStyleLayer(config, prefix, NormKind::kRms, std::move(attention),
                        LlamaStyleMlp(config, prefix, false)));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
