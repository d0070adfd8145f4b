// What the kernels of cuda_latent share that run wide items.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_LATENT_SM90_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_LATENT_SM90_H_

#include "absl/status/status.h"
#include "kernels/attention/attention_items_cuda.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

// Runs the plan's items, which are wide: attention_latent_wide_sm90.cu. Errors
// are the device's.
absl::Status LaunchAttentionLatentWide(const AttentionDesc& desc,
                                       const AttentionParams& params,
                                       CudaStream& stream);
// Folds the partial results of rows of more than kChunksOfCtas chunks and
// writes those rows out: attention_latent_fold_sm90.cu. `lists`:
// AttentionPlanShape::grid.
absl::Status LaunchAttentionLatentFold(const AttentionItemArgs& args, int lists,
                                       CudaStream& stream);

namespace latent_sm90 {

inline constexpr int kValueDim = 512;
inline constexpr int kRows = kAttentionWideItemRows;  // a CTA's
inline constexpr int kWarpgroup = 128;
inline constexpr int kSumHalves = 2;
inline constexpr int kSumColumns = kValueDim / kSumHalves;  // a warpgroup's

// A partial result of a CTA's rows is the sums of each warpgroup that sums as
// its threads have them (those of wgmma: thread t has rows t / 32 * 16 +
// t % 32 / 4 + 8 r, r = 0 and 1, and of every eight columns two, from t % 4 * 2
// on), then each row's maximum and sum, by each of the warpgroups. A thread's
// two columns lie side by side, and those of all threads one after another.
inline constexpr int kPartialPairs = kSumColumns / 8;
inline constexpr int kPartialStep = 2 * kWarpgroup;
inline constexpr int64_t kPartialFloats =
    int64_t{kRows} * (kValueDim + 2 * kSumHalves);
// Rows of so many chunks are folded by the CTA that comes last.
inline constexpr int kChunksOfCtas = 2;

#ifdef __CUDACC__

// Where in a partial result a thread's sums of its row r begin: two of every
// eight columns of the warpgroup, kPartialStep apart.
__device__ inline int PartialSums(int half, int r, int thread) {
  return (half * 2 + r) * kPartialPairs * kPartialStep + thread * 2;
}
// Where a row's maximum and sum are, as a warpgroup has written them.
__device__ inline int PartialMaxAndSum(int half, int row) {
  return kRows * kValueDim + 2 * (half * kRows + row);
}

// What the sums of the item's row `row` are multiplied with in the end;
// `max_and_sum` is that row's. The head's sink counts; a row that sees nothing
// gives 0.
__device__ inline float InverseSum(const AttentionItemArgs& args,
                                   const AttentionItem& item, int row,
                                   float2 max_and_sum) {
  float sum = max_and_sum.y;
  if (args.sinks != nullptr) {
    const float base = max_and_sum.x == -INFINITY ? 0.0f : max_and_sum.x;
    const int head =
        item.kv_head * args.group + (item.row_begin + row) % args.group;
    sum += Exp2(args.sinks[head] * kLog2E - base);
  }
  return sum == 0.0f ? 0.0f : __frcp_rn(sum);
}

#endif  // __CUDACC__

}  // namespace latent_sm90
}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_LATENT_SM90_H_
