// The sizes of decode_attention's kernel that the table knows. Internal.
#ifndef INLAY_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_SM90_H_
#define INLAY_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_SM90_H_

#include "kernels/decode_attention/decode_attention.h"

namespace inlay {

inline constexpr int kDecodeCluster = 8;  // blocks that share a KV head
inline constexpr int kDecodeGroup = 8;    // query heads a KV head, at most

// decode_attention_sm90.cu
absl::Status RunDecodeAttentionSm90(const DecodeAttentionDesc& desc,
                                    const DecodeAttentionParams& params,
                                    Stream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_SM90_H_
