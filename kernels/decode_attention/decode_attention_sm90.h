// The sizes of decode_attention's kernel that the table knows. Internal.
#ifndef INLAY_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_SM90_H_
#define INLAY_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_SM90_H_

#include <cstdint>

#include "kernels/decode_attention/decode_attention.h"

namespace inlay {

// A cluster of blocks that share a KV head of a token.
struct DecodeCut {
  int cluster;
  int warps;     // of a block
  int32_t keys;  // up to which it takes less time than attention's items
};
// By how many KV heads of tokens there are: the first that find room. The
// first two as well where a prefix is shared, of which items read less.
inline constexpr DecodeCut kDecodeCuts[] = {
    {8, 8, 5120}, {8, 4, 3072}, {4, 4, 1536}, {2, 8, 4096}, {2, 4, 768}};
inline constexpr int kDecodeSharedCuts = 2;
// Eight warps fit on a multiprocessor, but clusters not everywhere; those that
// find no room begin late.
inline bool DecodeCutFits(const DecodeCut& cut, int64_t pairs, int num_sms) {
  return cut.warps * cut.cluster * pairs <=
         (cut.cluster > 2 ? 6 : 8) * int64_t{num_sms};
}
inline constexpr int kDecodeGroup = 8;  // query heads a KV head, at most

// decode_attention_sm90.cu
absl::Status RunDecodeAttentionSm90(const DecodeAttentionDesc& desc,
                                    const DecodeAttentionParams& params,
                                    Stream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_SM90_H_
