// Several residual streams (hyper-connections, arXiv:2409.19606, and those of
// DeepSeek-V4) as families' config.json has them. Sits beside deepseek_style.h.
#ifndef INLAY_CORE_MODEL_ARCH_STREAMS_STYLE_H_
#define INLAY_CORE_MODEL_ARCH_STREAMS_STYLE_H_

#include "core/model/decoder_spec.h"
#include "core/model/hf_config.h"

namespace inlay {

// hc_mult, hc_sinkhorn_iters and hc_eps, norms as the rest of the network has
// them; the final norm reads the mean of all. UNIMPLEMENTED where there are
// more streams than kernels know.
absl::StatusOr<StreamsSpec> ReadStreams(const Json& json,
                                        const DecoderConfig& config);

// The same of streams that are not mixed: hc_mult, hc_eps and hc_magnitude.
absl::StatusOr<StreamsSpec> ReadIndependentStreams(const Json& json,
                                                   const DecoderConfig& config);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_ARCH_STREAMS_STYLE_H_
