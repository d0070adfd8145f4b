#include "core/model/arch/selective_style.h"

#include "kernels/linear_attention/selective_scan.h"
#include "kernels/linear_attention/short_conv.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<SelectiveSpec> ReadSelective(const Json& config,
                                            const SelectiveKeys& keys,
                                            int64_t hidden_size, int64_t width,
                                            const std::string& prefix) {
  SelectiveSpec spec;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t state_size,
      JsonInt(config, keys.state_size, 16, 1, kMaxScanState));
  INLAY_ASSIGN_OR_RETURN(const int64_t taps,
                         JsonInt(config, keys.taps, 4, 2, kMaxConvTaps));
  INLAY_ASSIGN_OR_RETURN(spec.conv_bias,
                         JsonFlag(config, keys.conv_bias, true));
  INLAY_ASSIGN_OR_RETURN(const bool bias, JsonFlag(config, keys.bias, false));
  spec.rank = (hidden_size + 15) / 16;
  const Json* rank = JsonFind(config, keys.rank);
  if (rank != nullptr && *rank != "auto") {
    INLAY_ASSIGN_OR_RETURN(spec.rank,
                           JsonInt(config, keys.rank, 1, 1, kMaxHidden));
  }
  spec.width = width;
  spec.state_size = static_cast<int>(state_size);
  spec.num_taps = static_cast<int>(taps);
  spec.prefix = prefix;
  spec.input = {prefix + ".in_proj", 2 * width, hidden_size, bias};
  spec.low = {prefix + ".x_proj", spec.rank + 2 * state_size, width};
  spec.steps = {prefix + ".dt_proj", width, spec.rank, true};
  spec.output = {prefix + ".out_proj", hidden_size, width, bias};
  return spec;
}

}  // namespace inlay
