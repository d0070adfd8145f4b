// Between the two kernels of cuda_latent.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_LATENT_SM90_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_LATENT_SM90_H_

#include "absl/status/status.h"
#include "kernels/attention/attention.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

// Runs the plan's items, which are wide: attention_latent_wide_sm90.cu. Errors
// are the device's.
absl::Status LaunchAttentionLatentWide(const AttentionDesc& desc,
                                       const AttentionParams& params,
                                       CudaStream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_LATENT_SM90_H_
