// The CUDA rows of linear_attention: token by token, and by chunks of tokens.
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_LINEAR_ATTENTION_CUDA_H_
#define INLAY_KERNELS_LINEAR_ATTENTION_LINEAR_ATTENTION_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/linear_attention/linear_attention.h"
#include "kernels/linear_attention/state_plan.h"

namespace inlay {

// Token by token; `short_only`: sequences of fewer than kStateChunk tokens.
absl::Status RunLinearAttentionTokens(const LinearAttentionDesc& desc,
                                      const LinearAttentionParams& params,
                                      bool short_only, Stream& stream);

// The row "cuda_chunks": null where it computes `desc`, otherwise why not.
const char* LinearAttentionChunksRefuses(const LinearAttentionDesc& desc);
size_t LinearAttentionChunksWorkspaceBytes(const LinearAttentionDesc& desc,
                                           int64_t max_rows);
absl::Status RunLinearAttentionChunks(const LinearAttentionDesc& desc,
                                      const LinearAttentionParams& params,
                                      Stream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_LINEAR_ATTENTION_CUDA_H_
