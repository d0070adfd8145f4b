// attention's items on every GPU from sm_80 on, f16 or bf16 queries and a cache
// of the same type: the frame of attention_items_sm90.h in the shared memory
// that every GPU gives a CTA, 99 KB, with two stages of 8 KB a warp. What it
// needs of the instruction set (cp.async, mbarrier, ldmatrix, m16n8k16) is
// sm_80's. Roofline: memory bandwidth; 32 KB at least are in flight a
// multiprocessor, which hide a microsecond at 32 GB/s each.
#include "kernels/attention/attention_items_16bit_sm90.h"

namespace inlay {
namespace items_sm90 {
namespace {

template <typename T, int kDim>
absl::Status LaunchDim(const AttentionDesc& desc, const AttentionParams& params,
                       CudaStream& stream) {
  return Launch<Format16<T, kDim, Keys::kPlain, kSharedAnywhere>,
                Format16<T, kDim, Keys::kMasked, kSharedAnywhere>>(desc, params,
                                                                   stream);
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

absl::Status LaunchAttentionItemsMma(const AttentionDesc& desc,
                                     const AttentionParams& params,
                                     CudaStream& stream) {
  return desc.kv == DType::kF16
             ? items_sm90::LaunchFor<__half>(desc, params, stream)
             : items_sm90::LaunchFor<__nv_bfloat16>(desc, params, stream);
}

}  // namespace inlay
