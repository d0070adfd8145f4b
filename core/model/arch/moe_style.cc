#include "core/model/arch/moe_style.h"

#include <algorithm>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Gated, its matrices named `prefix` + names.
MlpSpec Expert(const DecoderConfig& config, const std::string& prefix,
               int64_t width, bool bias, const ExpertNames& names) {
  const int64_t hidden = config.hidden_size;
  const auto name = [&](std::string_view part) {
    return prefix + std::string(part);
  };
  MlpSpec expert;
  expert.width = width;
  expert.activation = config.activation;
  expert.gated = true;
  expert.input = {{name(names.gate), width, hidden, bias},
                  {name(names.up), width, hidden, bias}};
  expert.output = {name(names.down), hidden, width, bias};
  return expert;
}

}  // namespace

absl::Status CheckNumExperts(const Json& config, int64_t experts) {
  constexpr int64_t kMost = 1 << 16;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t layers,
      JsonInt(config, "num_hidden_layers", 1, 1, kMaxLayers));
  if (experts * layers <= kMost) return absl::OkStatus();
  return absl::InvalidArgumentError(FormattedString(
      "config.json: %d experts in each of %d layers; together they may be %d",
      experts, layers, kMost));
}

absl::StatusOr<MoeConfig> ReadMoeConfig(const Json& config,
                                        std::string_view width_key,
                                        const MoeDefaults& defaults) {
  std::string_view key = "num_experts";
  for (const std::string_view other :
       {"num_local_experts", "n_routed_experts"}) {
    if (JsonFind(config, key) == nullptr &&
        JsonFind(config, other) != nullptr) {
      key = other;
    }
  }
  MoeConfig moe;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t experts,
      JsonInt(config, key, defaults.num_experts, 1, kMaxExperts));
  INLAY_RETURN_IF_ERROR(CheckNumExperts(config, experts));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t top_k,
      JsonInt(config, "num_experts_per_tok", std::min(defaults.top_k, experts),
              1, std::min<int64_t>(experts, kMaxExpertsPerToken)));
  INLAY_ASSIGN_OR_RETURN(
      moe.routing.normalised,
      JsonFlag(config, "norm_topk_prob", defaults.normalised));
  INLAY_ASSIGN_OR_RETURN(
      moe.width, JsonInt(config, width_key, defaults.width, 1, kMaxHidden));
  moe.routing.num_experts = static_cast<int>(experts);
  moe.routing.top_k = static_cast<int>(top_k);
  return moe;
}

MoeSpec LlamaStyleMoe(const DecoderConfig& config, const MoeConfig& moe,
                      const std::string& prefix, std::string_view router,
                      bool bias, const ExpertNames& names) {
  MoeSpec spec;
  spec.routing = moe.routing;
  spec.router = {prefix + std::string(router), moe.routing.num_experts,
                 config.hidden_size, bias};
  for (int e = 0; e < moe.routing.num_experts; ++e) {
    spec.experts.push_back(Expert(config,
                                  FormattedString("%sexperts.%d.", prefix, e),
                                  moe.width, bias, names));
  }
  return spec;
}

MlpSpec SharedExpert(const DecoderConfig& config, const std::string& prefix,
                     int64_t width, const ExpertNames& names) {
  return Expert(config, prefix, width, false, names);
}

absl::StatusOr<std::vector<bool>> ReadSparseLayers(const Json& config,
                                                   int num_layers) {
  INLAY_ASSIGN_OR_RETURN(
      const int64_t step,
      JsonInt(config, "decoder_sparse_step", 1, 1, kMaxLayers));
  std::vector<bool> sparse;
  for (int i = 0; i < num_layers; ++i) sparse.push_back((i + 1) % step == 0);
  const Json* dense = JsonFind(config, "mlp_only_layers");
  if (dense == nullptr) return sparse;
  const auto is_layer = [&](const Json& layer) {
    return layer.is_number_integer() && layer.get<int64_t>() >= 0 &&
           layer.get<int64_t>() < num_layers;
  };
  if (!dense->is_array() ||
      !std::all_of(dense->begin(), dense->end(), is_layer)) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: mlp_only_layers is %s; it must be an array of layers "
        "from 0 to %d",
        ShownJson(*dense), num_layers - 1));
  }
  for (const Json& layer : *dense) {
    sparse[static_cast<size_t>(layer.get<int64_t>())] = false;
  }
  return sparse;
}

absl::StatusOr<std::vector<bool>> ReadMlpLayers(const Json& config,
                                                int num_layers, int num_dense) {
  INLAY_ASSIGN_OR_RETURN(
      std::vector<bool> sparse,
      ReadLayerKinds(config, "mlp_layer_types", num_layers, "sparse", "dense"));
  for (int i = static_cast<int>(sparse.size()); i < num_layers; ++i) {
    sparse.push_back(i >= num_dense);
  }
  return sparse;
}

}  // namespace inlay
