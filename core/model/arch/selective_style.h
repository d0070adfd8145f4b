// What families with Mamba 1 mixers share: their numbers in config.json, under
// the names that a family has for them, and their tensors' names.
#ifndef INLAY_CORE_MODEL_ARCH_SELECTIVE_STYLE_H_
#define INLAY_CORE_MODEL_ARCH_SELECTIVE_STYLE_H_

#include <string>
#include <string_view>

#include "core/model/decoder_spec.h"
#include "core/model/hf_config.h"

namespace inlay {

// Keys of config.json.
struct SelectiveKeys {
  std::string_view state_size = "state_size";
  std::string_view taps = "conv_kernel";
  std::string_view rank = "time_step_rank";
  std::string_view conv_bias = "use_conv_bias";
  std::string_view bias = "use_bias";  // of the first and last projection
};

// Mixer "PREFIX" (no dot at its end) of `width` over `hidden_size`:
// PREFIX.in_proj, .conv1d, .x_proj, .dt_proj, .A_log, .D and .out_proj; no
// norms.
absl::StatusOr<SelectiveSpec> ReadSelective(const Json& config,
                                            const SelectiveKeys& keys,
                                            int64_t hidden_size, int64_t width,
                                            const std::string& prefix);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_ARCH_SELECTIVE_STYLE_H_
