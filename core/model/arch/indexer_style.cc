#include "core/model/arch/indexer_style.h"

#include <algorithm>
#include <variant>

#include "core/model/arch/llama_style.h"
#include "kernels/indexer/indexer.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<IndexConfig> ReadIndexConfig(const Json& json,
                                            const IndexDefaults& defaults,
                                            const LatentConfig& latent,
                                            int64_t max_positions) {
  IndexConfig config;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t heads,
      JsonInt(json, "index_n_heads", defaults.num_heads, 1, kMaxIndexHeads));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t head_dim,
      JsonInt(json, "index_head_dim", 128, 1, kMaxIndexHeadDim));
  INLAY_ASSIGN_OR_RETURN(const int64_t top_k,
                         JsonInt(json, "index_topk", 2048, 1, kMaxPositions));
  config.interleaved = defaults.interleaved;
  INLAY_RETURN_IF_ERROR(
      ExpectFlag(json, "indexer_rope_interleave", config.interleaved));
  if (head_dim < latent.rope_dim) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: index_head_dim is %d; it must be at least "
        "qk_rope_head_dim, %d",
        head_dim, latent.rope_dim));
  }
  if (defaults.reads_low_rank && latent.query_rank == 0) {
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
  config.key_epsilon = defaults.key_epsilon;
  return config;
}

IndexerSpec LayerIndexer(const IndexConfig& config, int64_t query_width,
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
                query_width};
  spec.key = {name + "wk", config.head_dim, hidden};
  spec.key_norm = {NormKind::kLayer, name + "k_norm", config.key_epsilon};
  spec.weights = {name + "weights_proj", config.num_heads, hidden};
  return spec;
}

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
          ShownJson(*pattern), num_layers));
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

absl::Status CheckFirstSelects(const std::vector<bool>& selects) {
  if (selects.front()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "config.json: layer 0 sees what a layer before it has selected, and "
      "there is none; its indexer must be \"full\"");
}

absl::Status AddIndexers(const IndexConfig& config,
                         const std::vector<bool>& selects,
                         const LatentConfig& latent, DecoderSpec* spec) {
  INLAY_RETURN_IF_ERROR(CheckFirstSelects(selects));
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

}  // namespace inlay
