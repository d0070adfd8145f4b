// What families with Mamba 2 mixers share: their numbers in config.json, under
// the names that a family has for them, and their tensors' names.
#ifndef INLAY_CORE_MODEL_ARCH_MAMBA_STYLE_H_
#define INLAY_CORE_MODEL_ARCH_MAMBA_STYLE_H_

#include <string>
#include <string_view>

#include "core/model/decoder_spec.h"
#include "core/model/hf_config.h"

namespace inlay {

// Keys of config.json, and what a family assumes where they are silent.
struct MambaKeys {
  std::string_view heads = "mamba_n_heads";
  std::string_view head_dim = "mamba_d_head";
  std::string_view groups = "mamba_n_groups";
  std::string_view state_size = "mamba_d_state";
  std::string_view taps = "mamba_d_conv";
  std::string_view conv_bias = "mamba_conv_bias";
  std::string_view bias = "mamba_proj_bias";  // of both projections
  int64_t default_heads = 128;
  int64_t default_head_dim = 0;  // 0: "auto"
  int64_t default_groups = 1;
  int64_t default_state_size = 256;
};

// Mixer "PREFIX" (no dot at its end) over `hidden_size`: PREFIX.in_proj,
// .conv1d, .A_log, .D, .dt_bias and .out_proj; no norm. `inner`: the width that
// heads are to have together; a head_dim of "auto" follows from it.
// INVALID_ARGUMENT where they do not.
absl::StatusOr<MambaSpec> ReadMamba(const Json& config, const MambaKeys& keys,
                                    int64_t hidden_size, int64_t inner,
                                    const std::string& prefix);

// time_step_limit: [least, most], the second mostly infinite.
absl::Status ReadStepLimits(const Json& config, MambaSpec* spec);

// A number, or {"__float__": "Infinity"} (python_json.h).
absl::StatusOr<float> ReadFloat(const Json& value, std::string_view key);

// `count` numbers; all 1 where the key is absent.
absl::StatusOr<std::vector<float>> ReadFactors(const Json& config,
                                               std::string_view key,
                                               size_t count);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_ARCH_MAMBA_STYLE_H_
