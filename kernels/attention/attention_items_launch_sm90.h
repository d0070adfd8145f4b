// The kernel of attention's items (attention_items_sm90.h) for a format of the
// cache, and how it is launched.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_LAUNCH_SM90_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_LAUNCH_SM90_H_

#include "kernels/attention/attention_items_sm90.h"
#include "kernels/cuda_launch.cuh"

namespace inlay::items_sm90 {

template <typename Format>
__global__ void __launch_bounds__(Plan<Format>::kThreads, 1)
    AttentionItems(const __grid_constant__ AttentionItemArgs args) {
  LetNextBegin();
  extern __shared__ unsigned char memory[];
  const Shared<Format> shared(memory);
  const Items items = {args.items, shared.head->items,
                       args.cta_items[blockIdx.x],
                       args.cta_items[blockIdx.x + 1]};
  constexpr int kParts = sizeof(AttentionItem) / sizeof(int4);
  const int parts = min(kItemsAtHand, items.end - items.begin) * kParts;
  if (static_cast<int>(threadIdx.x) < parts) {
    reinterpret_cast<int4*>(shared.head->items)[threadIdx.x] =
        reinterpret_cast<const int4*>(args.items + items.begin)[threadIdx.x];
  }
  if (threadIdx.x == 0) {
    for (uint64_t& full : shared.head->query_full) {
      sm90::InitBarrier(&full, Plan<Format>::kThreads);
    }
  }
  __syncthreads();
  Worker<Format>(args, items, shared).Run();
}

// Masked is Plain but for kHasMask, Sharing but for kSharesKeys.
template <typename Plain, typename Masked, typename Sharing = Plain>
absl::Status Launch(const AttentionDesc& desc, const AttentionParams& params,
                    CudaStream& stream) {
  const bool masked = HasMask(params);
  const bool shares = params.plan->shares;
  if (shares && (masked || !Sharing::kSharesKeys)) {
    return absl::InvalidArgumentError(
        "attention: the plan has items of shared keys; expected none with a "
        "mask or ALiBi, or a cache of bytes (AttentionPlanShape::prefix_units "
        "0)");
  }
  const int bytes =
      shares ? Plan<Sharing>::kSharedBytes : Plan<Plain>::kSharedBytes;
  return LaunchCuda("attention (items)", stream,
                    {params.plan->shape.grid, Plan<Plain>::kThreads,
                     static_cast<size_t>(bytes)},
                    masked   ? AttentionItems<Masked>
                    : shares ? AttentionItems<Sharing>
                             : AttentionItems<Plain>,
                    MakeAttentionItemArgs(desc, params));
}

// Format::kSelectsKeys.
template <typename Format>
absl::Status LaunchSelected(const AttentionDesc& desc,
                            const AttentionParams& params, CudaStream& stream) {
  return LaunchCuda("attention (selected)", stream,
                    {params.plan->shape.grid, Plan<Format>::kThreads,
                     static_cast<size_t>(Plan<Format>::kSharedBytes)},
                    AttentionItems<Format>,
                    MakeAttentionItemArgs(desc, params));
}

}  // namespace inlay::items_sm90

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_LAUNCH_SM90_H_
