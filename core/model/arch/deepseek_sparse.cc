// DeepSeek-V3.2 (arXiv:2512.02556) and GLM-5: DeepSeek-V3's decoder with an
// indexer beside attention that selects the keys a query sees. In GLM-5 some
// layers see what an earlier one has selected (arXiv:2603.12201). A.X-K2 (SK
// Telecom, 2026): DeepSeek-V3.2 with gates of low rank behind norms, and of
// what attention gives. Source of names and defaults: transformers'
// configuration classes.
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/indexer_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
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

// Layers of one kind, and keys that go together.
absl::Status CheckAxK2(const Json& json) {
  const Json* types = JsonFind(json, "layer_types");
  for (const Json& type : types == nullptr ? Json::array() : *types) {
    if (type == "indexed_attention") continue;
    return absl::UnimplementedError(
        FormattedString("config.json: layer_types has %s; supported here is "
                        "\"indexed_attention\"",
                        ShownJson(type)));
  }
  const bool has_groups = JsonFind(json, "n_group") != nullptr;
  if (has_groups == (JsonFind(json, "topk_group") != nullptr)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "config.json: of n_group and topk_group one is there; it must be both or "
      "none");
}

// A gate behind the block's norm.
void GateInput(int64_t hidden, int64_t rank, BlockSpec* block) {
  const std::string name = block->pre_norm.name + ".";
  block->pre_norm.name = name + "norm";
  block->input_gate = {{name + "W_down", rank, hidden},
                       {name + "W_up", hidden, rank}};
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

absl::StatusOr<std::unique_ptr<Model>> MakeAxK2(const Json& json,
                                                ModelBuild& build) {
  SparseDefaults defaults;
  defaults.decoder.vocab_size = 163840;
  defaults.decoder.hidden_size = 2048;
  defaults.decoder.intermediate_size = 5120;
  defaults.decoder.num_layers = 48;
  defaults.decoder.num_kv_heads = UnlessNull(json, "num_key_value_heads", 32);
  defaults.decoder.head_dim = 64;  // as above
  defaults.decoder.max_positions = 131072;
  defaults.experts.moe = {128, 8, 512, true};
  defaults.experts.scale = 2.5;
  defaults.latent.query_rank = 384;
  defaults.latent.rank = 128;
  defaults.latent.key_dim = 64;
  defaults.latent.rope_dim = 32;
  defaults.latent.value_dim = 64;
  defaults.index.num_heads = 16;
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, SparseSpec(json, defaults, false));
  INLAY_RETURN_IF_ERROR(CheckAxK2(json));
  INLAY_ASSIGN_OR_RETURN(const int64_t rank,
                         JsonInt(json, "gated_norm_rank", 16, 1, kMaxHidden));
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<LatentAttentionSpec>(layer.blocks[0].part);
    // One tensor in files (head_source.h).
    LinearSpec& query = attention.query.back();
    const std::string name = query.name.substr(0, query.name.rfind("q_b_proj"));
    query.name = name + "q_proj";
    query.k *= 2;
    attention.reads_both = true;
    LinearSpec gate = query;
    gate.name = name + "gate_proj";
    gate.n = int64_t{attention.num_heads} * attention.value_dim;
    attention.gate = std::move(gate);
    GateInput(spec.hidden_size, rank, &layer.blocks[0]);
    if (!std::holds_alternative<MoeSpec>(layer.blocks[1].part)) continue;
    GateInput(spec.hidden_size, rank, &layer.blocks[1]);
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
