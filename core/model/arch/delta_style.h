// Kimi delta attention (arXiv:2510.26692) as families' config.json and files
// have it. Sits beside llama_style.h.
#ifndef INLAY_CORE_MODEL_ARCH_DELTA_STYLE_H_
#define INLAY_CORE_MODEL_ARCH_DELTA_STYLE_H_

#include <string>

#include "core/model/decoder_spec.h"
#include "core/model/hf_config.h"

namespace inlay {

// linear_attn_config, which must be an object; empty where it is absent.
absl::StatusOr<Json> KimiDeltaConfig(const Json& json);

// The sizes: num_heads, head_dim and short_conv_kernel_size in that, or
// linear_num_heads, linear_head_dim and linear_conv_kernel_dim beside it;
// `num_heads` where both are silent; no names. All in range.
absl::StatusOr<DeltaSpec> ReadKimiDelta(const Json& json,
                                        const Json& delta_config,
                                        int64_t num_heads);

// `sizes` with tensors PREFIXself_attn.q_proj and so on.
DeltaSpec KimiDelta(const DeltaSpec& sizes, const DecoderConfig& config,
                    const std::string& prefix);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_ARCH_DELTA_STYLE_H_
