#include "core/model/arch/delta_style.h"

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

namespace {

// Under the name that it has in `delta_config`, or the one beside that.
absl::StatusOr<int64_t> ReadSize(const Json& json, const char* beside,
                                 const Json& delta_config, const char* key,
                                 int64_t fallback, int64_t min, int64_t max) {
  if (delta_config.contains(key)) {
    return JsonInt(delta_config, key, fallback, min, max);
  }
  return JsonInt(json, beside, fallback, min, max);
}

}  // namespace

absl::StatusOr<Json> KimiDeltaConfig(const Json& json) {
  const Json* given = JsonFind(json, "linear_attn_config");
  if (given == nullptr) return Json::object();
  if (given->is_object()) return *given;
  return absl::InvalidArgumentError(FormattedString(
      "config.json: linear_attn_config is %s; it must be an object",
      given->type_name()));
}

absl::StatusOr<DeltaSpec> ReadKimiDelta(const Json& json,
                                        const Json& delta_config,
                                        int64_t num_heads) {
  INLAY_ASSIGN_OR_RETURN(const int64_t heads,
                         ReadSize(json, "linear_num_heads", delta_config,
                                  "num_heads", num_heads, 1, kMaxHeads));
  INLAY_ASSIGN_OR_RETURN(const int64_t head_dim,
                         ReadSize(json, "linear_head_dim", delta_config,
                                  "head_dim", 128, 1, kMaxHeadDim));
  INLAY_ASSIGN_OR_RETURN(const int64_t taps,
                         ReadSize(json, "linear_conv_kernel_dim", delta_config,
                                  "short_conv_kernel_size", 4, 2, 64));
  if (heads * head_dim > kMaxHidden) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: linear_num_heads is %d and linear_head_dim %d; together "
        "they may be %d wide",
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
