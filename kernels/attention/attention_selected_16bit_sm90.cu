// attention over selected blocks of keys on Hopper, caches of f16 and bf16: the
// frame of items (attention_items_sm90.h), whose sixteens of slots are looked
// up in the query's selection instead of its block table. An item is one
// query's heads of a KV head (up to 16 rows of one tile) x a range of its
// selected keys; few queries are split over CTAs and combined as all items are.
// Roofline: the bytes of the keys and values selected: 2,048 x 8 KV heads x 128
// x 2 x 2 bytes = 8 MB a query and layer, 2 us at 4.2 TB/s, beside which are a
// launch, a look-up and the fold.
#include "kernels/attention/attention_items_16bit_sm90.h"

namespace inlay {
namespace items_sm90 {
namespace {

template <typename T, int kDim>
absl::Status Selected(const AttentionDesc& desc, const AttentionParams& params,
                      CudaStream& stream) {
  return LaunchSelected<Format16<T, kDim, Keys::kSelected>>(desc, params,
                                                            stream);
}

template <typename T>
absl::Status SelectedFor(const AttentionDesc& desc,
                         const AttentionParams& params, CudaStream& stream) {
  switch (desc.head_dim) {
    case 64:
      return Selected<T, 64>(desc, params, stream);
    case 80:
      return Selected<T, 80>(desc, params, stream);
    case 96:
      return Selected<T, 96>(desc, params, stream);
    case 128:
      return Selected<T, 128>(desc, params, stream);
    case 192:
      return Selected<T, 192>(desc, params, stream);
    default:
      return Selected<T, 256>(desc, params, stream);
  }
}

}  // namespace
}  // namespace items_sm90

absl::Status LaunchAttentionSelected16Bit(const AttentionDesc& desc,
                                          const AttentionParams& params,
                                          CudaStream& stream) {
  return desc.kv == DType::kF16
             ? items_sm90::SelectedFor<__half>(desc, params, stream)
             : items_sm90::SelectedFor<__nv_bfloat16>(desc, params, stream);
}

}  // namespace inlay
