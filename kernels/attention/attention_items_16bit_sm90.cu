// attention's items over caches of f16 and bf16 (attention_items_16bit_sm90.h).
#include "kernels/attention/attention_items_16bit_sm90.h"

namespace inlay {
namespace items_sm90 {
namespace {

template <typename T, int kDim>
absl::Status LaunchDim(const AttentionDesc& desc, const AttentionParams& params,
                       CudaStream& stream) {
  return Launch<Format16<T, kDim, Keys::kPlain>,
                Format16<T, kDim, Keys::kMasked>,
                Format16<T, kDim, Keys::kSharing>>(desc, params, stream);
}

template <typename T>
absl::Status LaunchFor(const AttentionDesc& desc, const AttentionParams& params,
                       CudaStream& stream) {
  switch (desc.head_dim) {
    case 64:
      return LaunchDim<T, 64>(desc, params, stream);
    case 80:
      return LaunchDim<T, 80>(desc, params, stream);
    case 96:
      return LaunchDim<T, 96>(desc, params, stream);
    case 128:
      return LaunchDim<T, 128>(desc, params, stream);
    case 192:
      return LaunchDim<T, 192>(desc, params, stream);
    default:
      return LaunchDim<T, 256>(desc, params, stream);
  }
}

}  // namespace
}  // namespace items_sm90

absl::Status LaunchAttentionItems16Bit(const AttentionDesc& desc,
                                       const AttentionParams& params,
                                       CudaStream& stream) {
  return desc.kv == DType::kF16
             ? items_sm90::LaunchFor<__half>(desc, params, stream)
             : items_sm90::LaunchFor<__nv_bfloat16>(desc, params, stream);
}

}  // namespace inlay
