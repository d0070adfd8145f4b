// GLM-5.3 (Z.ai, 2026), text: Kimi delta attention in most layers, in the
// others latent attention without positions, whose keys an indexer selects in
// pools of several tokens; DeepSeek-V3's mixtures of experts with cut-off gates
// and several residual streams, DeepSeek-V4's, whose mean is what the head
// reads. Names of tensors are those of published files. Source: transformers'
// Glm5NextTextConfig, its modules and its table of names. That has no class of
// the text alone; here it is Glm5NextForCausalLM.
#include <algorithm>
#include <bit>
#include <utility>
#include <variant>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/delta_style.h"
#include "core/model/arch/indexer_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/streams_style.h"
#include "core/model/decoder.h"
#include "kernels/kv_compress/kv_compress.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct NextConfig {
  DecoderConfig decoder;
  LatentConfig latent;
  DeepseekExperts experts;
  DeltaSpec delta;  // sizes, no names
  StreamsSpec streams;
  IndexConfig index;
  int pool = 0;  // tokens that are selected or not
  // Of each layer.
  std::vector<bool> attends;
  std::vector<bool> selects;
};

absl::StatusOr<DecoderConfig> ReadDecoder(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 154880;
  defaults.hidden_size = 4096;
  defaults.intermediate_size = 12288;
  defaults.num_layers = 45;
  defaults.num_heads = 64;
  defaults.head_dim = 256;  // not used: both kinds of layers have their own
  defaults.max_positions = 1048576;
  defaults.norm_epsilon = 1e-5;
  // Which is qk_rope_head_dim's 0 in files.
  Json own = json;
  own.erase("head_dim");
  INLAY_ASSIGN_OR_RETURN(DecoderConfig config,
                         ReadDecoderConfig(own, defaults));
  INLAY_RETURN_IF_ERROR(ExpectName(json, "hidden_act", "silu"));
  config.activation = Activation::kLimitedSilu;
  return config;
}

absl::StatusOr<DeepseekExperts> ReadNextExperts(const Json& json,
                                                int num_layers) {
  DeepseekDefaults defaults;
  defaults.moe = {288, 8, 2048, true};
  defaults.scale = 2.5;
  INLAY_ASSIGN_OR_RETURN(DeepseekExperts experts,
                         ReadDeepseekV3Experts(json, defaults));
  INLAY_ASSIGN_OR_RETURN(experts.sparse, ReadMlpLayers(json, num_layers, 3));
  return experts;
}

// The heads' keys and queries have no rotated part.
absl::StatusOr<LatentConfig> ReadNextLatent(const Json& json, int num_heads) {
  INLAY_ASSIGN_OR_RETURN(const int64_t rope_dim,
                         JsonInt(json, "qk_rope_head_dim", 0, 0, kMaxHeadDim));
  if (rope_dim != 0) {
    return absl::UnimplementedError(FormattedString(
        "config.json: qk_rope_head_dim is %d; supported here is 0", rope_dim));
  }
  LatentConfig defaults;
  defaults.key_dim = defaults.value_dim = 256;
  Json without = json;
  without.erase("qk_rope_head_dim");
  INLAY_ASSIGN_OR_RETURN(LatentConfig latent,
                         ReadLatentConfig(without, num_heads, defaults));
  latent.rope_dim = 0;
  return latent;
}

// DeltaSpec::decay_bound: linear_lower_bound, null for none; or what published
// files may have in linear_attn_config, where safe_gate means that there is
// one.
absl::StatusOr<float> ReadBound(const Json& json, const Json& delta_config) {
  constexpr double kPublished = -5.0;
  constexpr char kKey[] = "gate_lower_bound";
  const bool inside = delta_config.contains(kKey);
  const Json& holder = inside ? delta_config : json;
  const char* key = inside ? kKey : "linear_lower_bound";
  if (holder.contains(key) && holder[key].is_null()) {
    // transformers asks for it only where there is a linear_attn_config.
    INLAY_ASSIGN_OR_RETURN(
        const bool safe,
        JsonFlag(delta_config, "safe_gate",
                 JsonFind(json, "linear_attn_config") != nullptr));
    return safe ? static_cast<float>(kPublished) : 0.0f;
  }
  INLAY_ASSIGN_OR_RETURN(const double bound,
                         JsonNumber(holder, key, kPublished, -1e3, -1e-3));
  return static_cast<float>(bound);
}

// layer_types, or every fourth layer.
absl::StatusOr<std::vector<bool>> ReadAttends(const Json& json,
                                              int num_layers) {
  constexpr char kKey[] = "layer_types";
  Json named = json;
  // The older name of the same.
  if (const auto types = named.find(kKey);
      types != named.end() && types->is_array()) {
    for (Json& type : *types) {
      if (type == "full_attention") type = "indexed_attention";
    }
  }
  INLAY_ASSIGN_OR_RETURN(
      std::vector<bool> attends,
      ReadLayerKinds(named, kKey, num_layers, "indexed_attention",
                     "linear_attention"));
  for (int i = static_cast<int>(attends.size()); i < num_layers; ++i) {
    attends.push_back(i % 4 == 3);
  }
  return attends;
}

// Published code hands a selection to the next layer alone.
absl::Status CheckSelections(const NextConfig& config) {
  for (size_t i = 0; i < config.attends.size(); ++i) {
    if (!config.attends[i] || config.selects[i]) continue;
    if (i > 0 && config.attends[i - 1] && config.selects[i - 1]) continue;
    return absl::InvalidArgumentError(FormattedString(
        "config.json: indexer_types has layer %d see what another has "
        "selected; that must be the layer before it, one of attention with an "
        "indexer of its own",
        i));
  }
  return absl::OkStatus();
}

absl::Status ReadIndex(const Json& json, NextConfig* config) {
  IndexDefaults defaults;
  defaults.num_heads = 32;
  const int64_t max_positions = config->decoder.max_positions;
  INLAY_ASSIGN_OR_RETURN(
      config->index,
      ReadIndexConfig(json, defaults, config->latent, max_positions));
  INLAY_ASSIGN_OR_RETURN(const int64_t top_k,
                         JsonInt(json, "index_topk", 2048, 1, kMaxPositions));
  INLAY_ASSIGN_OR_RETURN(const int64_t pool,
                         JsonInt(json, "index_kpool", 16, 1, kMaxPositions));
  if (pool < 2 || pool > kMaxRowTokens ||
      !std::has_single_bit(static_cast<uint64_t>(pool))) {
    return absl::UnimplementedError(FormattedString(
        "config.json: index_kpool is %d; supported here are powers of two from "
        "2 to %d",
        pool, kMaxRowTokens));
  }
  if (top_k % pool != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: index_topk is %d; it must be a multiple of index_kpool, "
        "%d",
        top_k, pool));
  }
  INLAY_RETURN_IF_ERROR(
      ExpectFlag(json, "index_kpool_always_select_tail", true));
  config->pool = static_cast<int>(pool);
  const int64_t most = std::max<int64_t>(1, max_positions / pool);
  config->index.top_k = static_cast<int>(std::min(top_k / pool, most));
  return absl::OkStatus();
}

absl::StatusOr<NextConfig> ReadNextConfig(const Json& json) {
  NextConfig config;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadDecoder(json));
  const int num_layers = config.decoder.num_layers;
  INLAY_ASSIGN_OR_RETURN(config.experts, ReadNextExperts(json, num_layers));
  INLAY_ASSIGN_OR_RETURN(config.latent,
                         ReadNextLatent(json, config.decoder.num_heads));
  INLAY_ASSIGN_OR_RETURN(const Json delta_config, KimiDeltaConfig(json));
  INLAY_ASSIGN_OR_RETURN(config.delta, ReadKimiDelta(json, delta_config, 64));
  INLAY_ASSIGN_OR_RETURN(config.delta.decay_bound,
                         ReadBound(json, delta_config));
  INLAY_ASSIGN_OR_RETURN(config.streams, ReadStreams(json, config.decoder));
  INLAY_ASSIGN_OR_RETURN(config.attends, ReadAttends(json, num_layers));
  INLAY_ASSIGN_OR_RETURN(config.selects, ReadSelectingLayers(json, num_layers));
  INLAY_RETURN_IF_ERROR(CheckSelections(config));
  INLAY_RETURN_IF_ERROR(ReadIndex(json, &config));
  return config;
}

LatentAttentionSpec Attention(const NextConfig& config, bool selects,
                              const DecoderSpec& decoder,
                              const std::string& prefix) {
  LatentAttentionSpec spec =
      LatentStyleAttention(config.decoder, config.latent, prefix);
  spec.query_norm.epsilon = spec.norm.epsilon = config.decoder.norm_epsilon;
  spec.select_block = config.pool;
  spec.selects = (config.index.top_k + 1) * config.pool;
  if (!selects) return spec;
  IndexerSpec& index = spec.indexer.emplace(
      LayerIndexer(config.index, config.latent.query_rank, decoder, prefix));
  index.max_keys = std::max<int64_t>(1, index.max_keys / config.pool);
  const std::string name = prefix + "self_attn.indexer.";
  CompressorSpec& compressor = index.compressor.emplace();
  compressor.head_dim = index.head_dim;
  compressor.row_tokens = config.pool;
  compressor.values = std::exchange(index.key, {});
  compressor.value_norm = std::exchange(index.key_norm, {});
  compressor.gates = {name + "index_kpool_compress_gate", index.head_dim,
                      config.decoder.hidden_size};
  compressor.gates.suffix = "";
  compressor.bias = name + "index_kpool_compress_ape";
  return spec;
}

void SetLimit(float limit, PartSpec* part) {
  if (auto* mlp = std::get_if<MlpSpec>(part)) {
    mlp->limit = limit;
    return;
  }
  auto& moe = std::get<MoeSpec>(*part);
  for (MlpSpec& expert : moe.experts) expert.limit = limit;
  if (moe.shared.has_value()) moe.shared->limit = limit;
}

absl::StatusOr<DecoderSpec> Glm5NextSpec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const NextConfig config, ReadNextConfig(json));
  INLAY_ASSIGN_OR_RETURN(const double limit,
                         JsonNumber(json, "swiglu_limit", 10.0, 1e-6, 1e6));
  const DecoderConfig& decoder = config.decoder;
  DecoderSpec spec = LlamaStyleDecoder(decoder, NormKind::kRms);
  spec.streams = config.streams;
  for (int i = 0; i < decoder.num_layers; ++i) {
    const auto at = static_cast<size_t>(i);
    const std::string prefix = LayerPrefix(i);
    PartSpec mixer = KimiDelta(config.delta, decoder, prefix);
    if (config.attends[at]) {
      mixer = Attention(config, config.selects[at], spec, prefix);
    }
    PartSpec mlp = LlamaStyleMlp(decoder, prefix, false);
    if (config.experts.HasExperts(i)) {
      mlp = DeepseekMoe(decoder, config.experts, prefix + "mlp.", true);
    }
    SetLimit(static_cast<float>(limit), &mlp);
    spec.layers.push_back(LlamaStyleLayer(decoder, prefix, NormKind::kRms,
                                          std::move(mixer), std::move(mlp)));
    spec.layers.back().blocks[0].hyper = prefix + "hc_attn";
    spec.layers.back().blocks[1].hyper = prefix + "hc_ffn";
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeGlm5Next(const Json& json,
                                                    ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Glm5NextSpec(json));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
