// DeepSeek-V3.2 (arXiv:2512.02556) and GLM-5: DeepSeek-V3's decoder with an
// indexer beside attention that selects the keys a query sees. In GLM-5 some
// layers see what an earlier one has selected (arXiv:2603.12201). Source of
// names and defaults: transformers' configuration classes.
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/indexer_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

// What a family assumes where config.json is silent.
struct SparseDefaults {
  DecoderDefaults decoder;
  DeepseekDefaults experts;
  LatentConfig latent;
  IndexDefaults index;
};

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
      ReadIndexConfig(json, defaults.index, latent, spec.max_positions));
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
  defaults.index.num_heads = 32;
  defaults.index.interleaved = true;
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         SparseSpec(json, defaults, true));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
