// DeepSeek-V3.2 (arXiv:2512.02556) and GLM-5: DeepSeek-V3's decoder with an
// indexer beside attention that selects the keys a query sees. In GLM-5 some
// layers see what an earlier one has selected (arXiv:2603.12201). Source of
// names and defaults: transformers' configuration classes.
#include <algorithm>
#include <utility>
#include <variant>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "kernels/indexer/indexer.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The published code has it in the class.
constexpr float kKeyEpsilon = 1e-6f;

// What a family assumes where config.json is silent.
struct SparseDefaults {
  DecoderDefaults decoder;
  DeepseekDefaults experts;
  LatentConfig latent;
  int64_t index_heads = 64;
  bool index_interleaved = false;  // the rotation of the indexer
};

struct IndexConfig {
  int num_heads = 0;
  int head_dim = 0;
  int top_k = 0;
  bool interleaved = false;
};

absl::StatusOr<IndexConfig> ReadIndexConfig(const Json& json,
                                            const SparseDefaults& defaults,
                                            const LatentConfig& latent,
                                            int64_t max_positions) {
  IndexConfig config;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t heads,
      JsonInt(json, "index_n_heads", defaults.index_heads, 1, kMaxIndexHeads));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t head_dim,
      JsonInt(json, "index_head_dim", 128, 1, kMaxIndexHeadDim));
  INLAY_ASSIGN_OR_RETURN(const int64_t top_k,
                         JsonInt(json, "index_topk", 2048, 1, kMaxPositions));
  config.interleaved = defaults.index_interleaved;
  INLAY_RETURN_IF_ERROR(
      ExpectFlag(json, "indexer_rope_interleave", config.interleaved));
  if (head_dim < latent.rope_dim) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: index_head_dim is %d; it must be at least "
        "qk_rope_head_dim, %d",
        head_dim, latent.rope_dim));
  }
  if (latent.query_rank == 0) {
    return absl::UnimplementedError(
        "config.json: q_lora_rank is null; an indexer reads queries of low "
        "rank");
  }
  const int64_t most = std::min(top_k, max_positions);
  if (most > kMaxIndexTopK) {
    return absl::UnimplementedError(FormattedString(
        "config.json: index_topk is %d; supported here are up to %d", top_k,
        kMaxIndexTopK));
  }
  config.num_heads = static_cast<int>(heads);
  config.head_dim = static_cast<int>(head_dim);
  config.top_k = static_cast<int>(most);
  return config;
}

IndexerSpec LayerIndexer(const IndexConfig& config, int64_t query_rank,
                         const DecoderSpec& decoder,
                         const std::string& prefix) {
  const int64_t hidden = decoder.hidden_size;
  const std::string name = prefix + "self_attn.indexer.";
  IndexerSpec spec;
  spec.num_heads = config.num_heads;
  spec.head_dim = config.head_dim;
  spec.max_keys = decoder.max_positions;
  if (config.interleaved) spec.rope_style = RopeStyle::kInterleaved;
  spec.query = {name + "wq_b", int64_t{config.num_heads} * config.head_dim,
                query_rank};
  spec.key = {name + "wk", config.head_dim, hidden};
  spec.key_norm = {NormKind::kLayer, name + "k_norm", kKeyEpsilon};
  spec.weights = {name + "weights_proj", config.num_heads, hidden};
  return spec;
}

// Which layers select keys, as a flag each; the others see what the last one of
// these before them has selected. indexer_types, or index_topk_pattern ("F" for
// those that do, "S" for the others, or such a list), or index_topk_freq and
// index_skip_topk_offset.
absl::StatusOr<std::vector<bool>> ReadSelectingLayers(const Json& json,
                                                      int num_layers) {
  INLAY_ASSIGN_OR_RETURN(
      std::vector<bool> selects,
      ReadLayerKinds(json, "indexer_types", num_layers, "full", "shared"));
  if (!selects.empty()) return selects;
  const Json* pattern = JsonFind(json, "index_topk_pattern");
  if (pattern != nullptr && !pattern->is_string()) {
    return ReadLayerKinds(json, "index_topk_pattern", num_layers, "full",
                          "shared");
  }
  if (pattern != nullptr) {
    const auto& letters = pattern->get_ref<const std::string&>();
    if (letters.size() != static_cast<size_t>(num_layers) ||
        letters.find_first_not_of("FS") != letters.npos) {
      return absl::InvalidArgumentError(FormattedString(
          "config.json: index_topk_pattern is %s; it must be %d letters F and "
          "S",
          DumpJson(*pattern), num_layers));
    }
    for (const char letter : letters) selects.push_back(letter == 'F');
    return selects;
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t every,
                         JsonInt(json, "index_topk_freq", 1, 0, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t offset,
      JsonInt(json, "index_skip_topk_offset", 2, 0, kMaxLayers));
  for (int64_t i = 0; i < num_layers; ++i) {
    selects.push_back(std::max<int64_t>(i - offset + 1, 0) %
                          std::max<int64_t>(every, 1) ==
                      0);
  }
  return selects;
}

absl::Status AddIndexers(const IndexConfig& config,
                         const std::vector<bool>& selects,
                         const LatentConfig& latent, DecoderSpec* spec) {
  if (!selects.front()) {
    return absl::InvalidArgumentError(
        "config.json: layer 0 sees what a layer before it has selected, and "
        "there is none; its indexer must be \"full\"");
  }
  for (size_t i = 0; i < spec->layers.size(); ++i) {
    auto& attention =
        std::get<LatentAttentionSpec>(spec->layers[i].blocks.front().part);
    attention.selects = config.top_k;
    if (!selects[i]) continue;
    attention.indexer = LayerIndexer(config, latent.query_rank, *spec,
                                     LayerPrefix(static_cast<int>(i)));
  }
  return absl::OkStatus();
}

absl::StatusOr<DecoderSpec> SparseSpec(const Json& json,
                                       const SparseDefaults& defaults,
                                       bool shares) {
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "rope_interleave", true));
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults.decoder));
  INLAY_ASSIGN_OR_RETURN(DeepseekExperts experts,
                         ReadDeepseekV3Experts(json, defaults.experts));
  INLAY_ASSIGN_OR_RETURN(
      experts.sparse, ReadLayerKinds(json, "mlp_layer_types", config.num_layers,
                                     "sparse", "dense"));
  INLAY_ASSIGN_OR_RETURN(
      const LatentConfig latent,
      ReadLatentConfig(json, config.num_heads, defaults.latent));
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec,
                         DeepseekDecoder(json, config, latent, experts, true));
  INLAY_ASSIGN_OR_RETURN(
      const IndexConfig index,
      ReadIndexConfig(json, defaults, latent, spec.max_positions));
  std::vector<bool> selects(static_cast<size_t>(config.num_layers), true);
  if (shares) {
    INLAY_ASSIGN_OR_RETURN(selects,
                           ReadSelectingLayers(json, config.num_layers));
  }
  INLAY_RETURN_IF_ERROR(AddIndexers(index, selects, latent, &spec));
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeDeepseekV32(const Json& json,
                                                       ModelBuild& build) {
  SparseDefaults defaults;
  defaults.decoder.vocab_size = 129280;
  defaults.decoder.hidden_size = 7168;
  defaults.decoder.intermediate_size = 18432;
  defaults.decoder.num_layers = 61;
  defaults.decoder.num_heads = 128;
  defaults.decoder.head_dim = 64;  // not used: latent attention has its own
  defaults.decoder.max_positions = 163840;
  defaults.experts = DeepseekV3Defaults();
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         SparseSpec(json, defaults, false));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeGlmMoeDsa(const Json& json,
                                                     ModelBuild& build) {
  SparseDefaults defaults;
  defaults.decoder.vocab_size = 154880;
  defaults.decoder.hidden_size = 6144;
  defaults.decoder.intermediate_size = 12288;
  defaults.decoder.num_layers = 78;
  defaults.decoder.num_heads = 64;
  defaults.decoder.head_dim = 64;  // as above
  defaults.decoder.max_positions = 202752;
  defaults.decoder.norm_epsilon = 1e-5;
  defaults.experts = DeepseekV3Defaults();
  defaults.experts.num_groups = defaults.experts.top_groups = 1;
  defaults.latent.query_rank = 2048;
  defaults.latent.key_dim = 192;
  defaults.latent.value_dim = 256;
  defaults.index_heads = 32;
  defaults.index_interleaved = true;
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         SparseSpec(json, defaults, true));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
