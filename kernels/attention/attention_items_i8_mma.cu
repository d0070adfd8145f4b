// attention's items over caches of i8 on every GPU from sm_80 on:
// attention_items_i8_sm90.h in the shared memory that every GPU gives a CTA,
// four warps with two stages of 8 KB. (f8_e4m3 asks for sm_89's conversion.)
#include "kernels/attention/attention_items_i8_sm90.h"

namespace inlay {
namespace items_sm90 {
namespace {

template <typename T, int kDim>
absl::Status LaunchDim(const AttentionDesc& desc, const AttentionParams& params,
                       CudaStream& stream) {
  return Launch<FormatI8<T, kDim, ByteKeys::kPlain, kSharedAnywhere>,
                FormatI8<T, kDim, ByteKeys::kMasked, kSharedAnywhere>>(
      desc, params, stream);
}

template <typename T>
absl::Status LaunchFor(const AttentionDesc& desc, const AttentionParams& params,
                       CudaStream& stream) {
  switch (desc.head_dim) {
    case 64:
      return LaunchDim<T, 64>(desc, params, stream);
    case 96:
      return LaunchDim<T, 96>(desc, params, stream);
    default:
      return LaunchDim<T, 128>(desc, params, stream);
  }
}

}  // namespace
}  // namespace items_sm90

absl::Status LaunchAttentionItemsI8Mma(const AttentionDesc& desc,
                                       const AttentionParams& params,
                                       CudaStream& stream) {
  return desc.activation == DType::kF16
             ? items_sm90::LaunchFor<__half>(desc, params, stream)
             : items_sm90::LaunchFor<__nv_bfloat16>(desc, params, stream);
}

}  // namespace inlay
