// The sizes of decode_attention's kernel that the table knows. Internal.
#ifndef INLAY_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_SM90_H_
#define INLAY_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_SM90_H_

#include <cstdint>

#include "kernels/decode_attention/decode_attention.h"

namespace inlay {

// Blocks that share a KV head of a token, by how many of these there are: the
// first number with which they find room.
inline constexpr int kDecodeClusters[] = {8, 4, 2};
// Two blocks fit on a multiprocessor, but clusters not everywhere; those that
// find no room begin late.
inline bool DecodeClusterFits(int cluster, int64_t pairs, int num_sms) {
  return 2 * cluster * pairs <= (cluster > 2 ? 3 : 4) * int64_t{num_sms};
}
inline constexpr int kDecodeGroup = 8;  // query heads a KV head, at most

// decode_attention_sm90.cu
absl::Status RunDecodeAttentionSm90(const DecodeAttentionDesc& desc,
                                    const DecodeAttentionParams& params,
                                    Stream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_SM90_H_
