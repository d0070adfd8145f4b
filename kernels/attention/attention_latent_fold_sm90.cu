// Folds the partial results of attention_latent_wide_sm90.cu, a row a block at
// a time: of a list's items only the last can be the first piece of rows whose
// keys are cut. Threads (slice, four columns): a slice has every kFoldSlices-th
// chunk, in ascending order. Roofline: the partial results, from the level-2
// cache.
#include "kernels/attention/attention_latent_sm90.h"
#include "kernels/attention/sm90_ops.h"
#include "kernels/cuda_launch.cuh"

namespace inlay {
namespace latent_sm90 {
namespace {

constexpr int kFoldSlices = 4;
constexpr int kFoldColumns = kValueDim / 4;  // threads a slice
constexpr int kFoldThreads = kFoldSlices * kFoldColumns;
constexpr int kFoldBlocksACta = 2;

template <typename T>
__global__ void __launch_bounds__(kFoldThreads)
    AttentionLatentFold(const __grid_constant__ AttentionItemArgs args,
                        int lists) {
  __shared__ int pieces[kFoldThreads];  // first pieces of items, in order
  __shared__ int counts[kFoldThreads / 32];
  __shared__ float2 pairs[kFoldThreads];
  __shared__ float4 slices[kFoldThreads];
  __shared__ float weights[kFoldSlices];
  WaitForPrevious();
  LetNextBegin();
  const int thread = static_cast<int>(threadIdx.x);
  int end = 0;
  bool cut = false;
  if (thread < lists) {
    end = args.cta_items[thread + 1];
    cut = end > args.cta_items[thread] && args.items[end - 1].slot >= 0 &&
          args.items[end - 1].first_chunk == 0;
  }
  const unsigned votes = __ballot_sync(0xffffffffu, cut);
  if (thread % 32 == 0) counts[thread / 32] = __popc(votes);
  __syncthreads();
  int before = 0;
  int num_pieces = 0;
  for (int i = 0; i < kFoldThreads / 32; ++i) {
    before += i < thread / 32 ? counts[i] : 0;
    num_pieces += counts[i];
  }
  if (cut) {
    pieces[before + __popc(votes & ((1u << thread % 32) - 1))] = end - 1;
  }
  __syncthreads();
  const int rows = args.item_rows;
  const int slice = thread / kFoldColumns;
  const int column = thread % kFoldColumns * 4;
  const int64_t slot = rows / kRows * kPartialFloats;
  for (int work = static_cast<int>(blockIdx.x); work < num_pieces * rows;
       work += static_cast<int>(gridDim.x)) {
    const AttentionItem item = args.items[pieces[work / rows]];
    const int row = work % rows;
    if (row >= item.num_rows) continue;
    const float* first =
        args.partials + item.slot * slot + row / kRows * kPartialFloats;
    const float* of_row = first + kRows * kValueDim + row % kRows * 2;
    const float* values = first + row % kRows * kValueDim + column;
    __syncthreads();  // the row before is done with shared memory
    for (int c = thread; c < item.num_chunks; c += kFoldThreads) {
      pairs[c] = __ldcg(reinterpret_cast<const float2*>(of_row + c * slot));
    }
    __syncthreads();
    float top = -INFINITY;
    for (int c = 0; c < item.num_chunks; ++c) top = fmaxf(top, pairs[c].x);
    const float base = top == -INFINITY ? 0.0f : top;
    float4 sums = {0.0f, 0.0f, 0.0f, 0.0f};
    float sum = 0.0f;
#pragma unroll 8
    for (int c = slice; c < item.num_chunks; c += kFoldSlices) {
      const float4 x =
          __ldcg(reinterpret_cast<const float4*>(values + c * slot));
      const float weight = Exp2(pairs[c].x - base);
      sum = fmaf(weight, pairs[c].y, sum);
      sums.x = fmaf(weight, x.x, sums.x);
      sums.y = fmaf(weight, x.y, sums.y);
      sums.z = fmaf(weight, x.z, sums.z);
      sums.w = fmaf(weight, x.w, sums.w);
    }
    slices[thread] = sums;
    if (column == 0) weights[slice] = sum;
    __syncthreads();
    if (slice != 0) continue;
    for (int i = 1; i < kFoldSlices; ++i) {
      const float4 x = slices[i * kFoldColumns + thread];
      sum += weights[i];
      sums = {sums.x + x.x, sums.y + x.y, sums.z + x.z, sums.w + x.w};
    }
    const float inverse = InverseSum(args, item, row, {top, sum});
    const int of_sequence = item.row_begin + row;
    char* out = static_cast<char*>(args.out) +
                (item.q_begin + of_sequence / args.group) * args.out_stride +
                2 * (HeadOffset(args, item, of_sequence, kValueDim) + column);
    *reinterpret_cast<uint2*>(out) = {
        sm90::Pack<T>(sums.x * inverse, sums.y * inverse),
        sm90::Pack<T>(sums.z * inverse, sums.w * inverse)};
  }
}

}  // namespace
}  // namespace latent_sm90

absl::Status LaunchAttentionLatentFold(const AttentionItemArgs& args, int lists,
                                       CudaStream& stream) {
  const int64_t ctas =
      int64_t{lists} * (args.item_rows / kAttentionWideItemRows);
  return LaunchCuda(
      "attention (fold of latent)", stream,
      {latent_sm90::kFoldBlocksACta * ctas, latent_sm90::kFoldThreads, 0},
      args.activation == DType::kF16
          ? latent_sm90::AttentionLatentFold<__half>
          : latent_sm90::AttentionLatentFold<__nv_bfloat16>,
      args, lists);
}

}  // namespace inlay
