#include "core/model/arch/delta_style.h"

#include <utility>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<Json> KimiDeltaConfig(const Json& json) {
  constexpr std::pair<const char*, const char*> kKeys[] = {
      {"num_heads", "linear_num_heads"},
      {"head_dim", "linear_head_dim"},
      {"short_conv_kernel_size", "linear_conv_kernel_dim"}};
  Json config = Json::object();
  if (const Json* given = JsonFind(json, "linear_attn_config")) {
    if (!given->is_object()) {
      return absl::InvalidArgumentError(FormattedString(
          "config.json: linear_attn_config is %s; it must be an object",
          given->type_name()));
    }
    config = *given;
  }
  for (const auto& [key, own] : kKeys) {
    if (!config.contains(key) && json.contains(own)) config[key] = json[own];
  }
  return config;
}

absl::StatusOr<DeltaSpec> ReadKimiDelta(const Json& delta_config,
                                        int64_t num_heads) {
  INLAY_ASSIGN_OR_RETURN(const int64_t heads, JsonInt(delta_config, "num_heads",
                                                      num_heads, 1, kMaxHeads));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t head_dim,
      JsonInt(delta_config, "head_dim", 128, 1, kMaxHeadDim));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t taps,
      JsonInt(delta_config, "short_conv_kernel_size", 4, 2, 64));
  if (heads * head_dim > kMaxHidden) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: linear_attn_config has %d heads of %d; together they may "
        "be %d wide",
        heads, head_dim, kMaxHidden));
  }
  DeltaSpec delta;
  delta.num_heads = delta.num_key_heads = static_cast<int>(heads);
  delta.key_dim = delta.value_dim = static_cast<int>(head_dim);
  delta.num_taps = static_cast<int>(taps);
  delta.decays_channels = true;
  delta.gate = GateFunction::kSigmoid;
  return delta;
}

DeltaSpec KimiDelta(const DeltaSpec& sizes, const DecoderConfig& config,
                    const std::string& prefix) {
  DeltaSpec delta = sizes;
  const std::string name = prefix + "self_attn.";
  const int64_t hidden = config.hidden_size;
  const int64_t width = delta.key_width();
  delta.qkvz = {{name + "q_proj", width, hidden},
                {name + "k_proj", width, hidden},
                {name + "v_proj", width, hidden}};
  delta.ba = {{name + "b_proj", delta.num_heads, hidden}};
  delta.low_rank_z = {{name + "g_a_proj", delta.key_dim, hidden},
                      {name + "g_b_proj", width, delta.key_dim}};
  delta.low_rank_a = {{name + "f_a_proj", delta.key_dim, hidden},
                      {name + "f_b_proj", width, delta.key_dim}};
  delta.convs = {name + "q_conv1d", name + "k_conv1d", name + "v_conv1d"};
  delta.a_log = name + "A_log";
  delta.dt_bias = name + "dt_bias";
  delta.norm = {NormKind::kRms, name + "o_norm", config.norm_epsilon};
  delta.output = {name + "o_proj", hidden, width};
  return delta;
}

}  // namespace inlay
