// The indexers of DeepSeek sparse attention (arXiv:2512.02556) as families'
// config.json has them. Sits beside deepseek_style.h.
#ifndef INLAY_CORE_MODEL_ARCH_INDEXER_STYLE_H_
#define INLAY_CORE_MODEL_ARCH_INDEXER_STYLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/arch/deepseek_style.h"
#include "core/model/decoder_spec.h"
#include "core/model/hf_config.h"

namespace inlay {

// What a family assumes where config.json is silent, and what its indexers are.
struct IndexDefaults {
  int64_t num_heads = 64;
  bool interleaved = false;    // the rotation
  float key_epsilon = 1e-6f;   // the published code has it in the class
  bool reads_low_rank = true;  // queries of low rank, which there must be
};

struct IndexConfig {
  int num_heads = 0;
  int head_dim = 0;
  int top_k = 0;
  bool interleaved = false;
  float key_epsilon = 0.0f;
};

// index_n_heads, index_head_dim and index_topk, which is no more than
// `max_positions`; UNIMPLEMENTED where indexer_rope_interleave is not what the
// family has.
absl::StatusOr<IndexConfig> ReadIndexConfig(const Json& json,
                                            const IndexDefaults& defaults,
                                            const LatentConfig& latent,
                                            int64_t max_positions);

// PREFIXself_attn.indexer.wq_b, .wk, .k_norm and .weights_proj, whose queries
// are made of `query_width` numbers.
IndexerSpec LayerIndexer(const IndexConfig& config, int64_t query_width,
                         const DecoderSpec& decoder, const std::string& prefix);

// Which layers select keys, as a flag each; the others see what the last one of
// these before them has selected. indexer_types, or index_topk_pattern ("F" for
// those that do, "S" for the others, or such a list), or index_topk_freq and
// index_skip_topk_offset.
absl::StatusOr<std::vector<bool>> ReadSelectingLayers(const Json& json,
                                                      int num_layers);

// INVALID_ARGUMENT where layer 0 selects none.
absl::Status CheckFirstSelects(const std::vector<bool>& selects);

// All layers of latent attention select, those flagged in `selects` by indexers
// of their own, of queries of low rank.
absl::Status AddIndexers(const IndexConfig& config,
                         const std::vector<bool>& selects,
                         const LatentConfig& latent, DecoderSpec* spec);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_ARCH_INDEXER_STYLE_H_
