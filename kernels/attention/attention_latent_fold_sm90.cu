// Folds the partial results of attention_latent_wide_sm90.cu of rows of more
// than kChunksOfCtas chunks: of a list's items only the last can be the first
// piece of such rows. A warp folds 16 columns of 8 rows (128 sums), or where
// there are few of those so many slices of them, each every slices-th chunk in
// ascending order: all loads of a step at once, since what costs time is
// waiting for them. Roofline: the partial results, from the level-2 cache.
#include "kernels/attention/attention_latent_sm90.h"
#include "kernels/attention/sm90_ops.h"
#include "kernels/cuda_launch.cuh"

namespace inlay {
namespace latent_sm90 {
namespace {

constexpr int kFoldWarps = 16;
constexpr int kFoldThreads = 32 * kFoldWarps;
constexpr int kFoldBlocksACta = 2;
constexpr int kFoldRows = 8;  // of a warp; a lane has four columns of one
constexpr int kFoldPairs = kPartialPairs / 2;        // each two of a lane's
constexpr int kFoldParts = kSumHalves * kFoldPairs;  // of these rows
constexpr int kFoldAhead = 4;                        // chunks

// Sums of some chunks: their largest score, sum of weights, weighted values.
struct Folded {
  float top = -INFINITY;
  float sum = 0.0f;
  float4 values = {0.0f, 0.0f, 0.0f, 0.0f};

  __device__ void Add(float2 max_and_sum, float4 x) {
    const float larger = fmaxf(top, max_and_sum.x);
    const float base = larger == -INFINITY ? 0.0f : larger;
    const float mine = Exp2(top - base);
    const float theirs = Exp2(max_and_sum.x - base);
    top = larger;
    sum = fmaf(sum, mine, max_and_sum.y * theirs);
    values.x = fmaf(values.x, mine, x.x * theirs);
    values.y = fmaf(values.y, mine, x.y * theirs);
    values.z = fmaf(values.z, mine, x.z * theirs);
    values.w = fmaf(values.w, mine, x.w * theirs);
  }
};

// The items that are first pieces of rows to fold, in order.
struct Pieces {
  int items[kFoldThreads];
  int groups[kFoldThreads];  // of kFoldRows, of the pieces up to this one
  int2 counts[kFoldWarps];

  // By all threads of the block; returns how many pieces there are.
  __device__ int Find(const AttentionItemArgs& args, int lists) {
    const int thread = static_cast<int>(threadIdx.x);
    int end = 0;
    int num_groups = 0;
    if (thread < lists) {
      end = args.cta_items[thread + 1];
      if (end > args.cta_items[thread]) {
        const AttentionItem& item = args.items[end - 1];
        const bool first = item.slot >= 0 && item.first_chunk == 0 &&
                           item.num_chunks > kChunksOfCtas;
        num_groups = first ? (item.num_rows + kFoldRows - 1) / kFoldRows : 0;
      }
    }
    const unsigned votes = __ballot_sync(0xffffffffu, num_groups > 0);
    int up_to = num_groups;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int before = __shfl_up_sync(0xffffffffu, up_to, step);
      if (thread % 32 >= step) up_to += before;
    }
    if (thread % 32 == 31) counts[thread / 32] = {__popc(votes), up_to};
    __syncthreads();
    int place = __popc(votes & ((1u << thread % 32) - 1));
    int count = 0;
#pragma unroll
    for (int i = 0; i < kFoldWarps; ++i) {
      place += i < thread / 32 ? counts[i].x : 0;
      up_to += i < thread / 32 ? counts[i].y : 0;
      count += counts[i].x;
    }
    if (num_groups > 0) {
      items[place] = end - 1;
      groups[place] = up_to;
    }
    __syncthreads();
    return count;
  }

  // Of `count`, the one that has group `group` of all.
  __device__ int PieceOf(int group, int count) const {
    int low = 0;
    for (int high = count - 1; low < high;) {
      const int middle = (low + high) / 2;
      if (groups[middle] > group) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }
};

template <typename T>
__global__ void __launch_bounds__(kFoldThreads, kFoldBlocksACta)
    AttentionLatentFold(const __grid_constant__ AttentionItemArgs args,
                        int lists) {
  __shared__ Pieces pieces;
  __shared__ float2 slice_sums[kFoldThreads / 4];
  __shared__ float4 slice_values[kFoldThreads];
  const int num_pieces = pieces.Find(args, lists);
  WaitForPrevious();
  LetNextBegin();
  if (num_pieces == 0) return;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int grid = static_cast<int>(gridDim.x);
  const int parts = pieces.groups[num_pieces - 1] * kFoldParts;
  int slices = 1;
  while (slices < kFoldWarps && parts * slices * 2 <= grid * kFoldWarps) {
    slices *= 2;
  }
  const int at_once = kFoldWarps / slices;  // parts that a block folds
  const int slice = warp / at_once;
  const int64_t slot = args.item_rows / kRows * kPartialFloats;
  for (int begin = static_cast<int>(blockIdx.x) * at_once; begin < parts;
       begin += grid * at_once) {
    const int part = begin + warp % at_once;
    const bool exists = part < parts;
    const int of_all = (exists ? part : begin) / kFoldParts;
    const int piece = pieces.PieceOf(of_all, num_pieces);
    const AttentionItem& item = args.items[pieces.items[piece]];
    const int group = of_all - (piece > 0 ? pieces.groups[piece - 1] : 0);
    const int row = group * kFoldRows + lane / 4;
    const int num_chunks = exists && row < item.num_rows ? item.num_chunks : 0;
    const int half = part % kFoldParts / kFoldPairs;
    const int columns = part % kFoldPairs;
    const float* of_cta = args.partials + (item.slot + slice) * slot +
                          row / kRows * kPartialFloats;
    const int64_t step = slices * slot;
    const float* of_row = of_cta + PartialMaxAndSum(half, row % kRows);
    // Of the thread that had them: two groups of rows to a warp.
    const int thread = group / 2 % 4 * 32 + lane;
    const float* values = of_cta + PartialSums(half, group % 2, thread) +
                          2 * columns * kPartialStep;
    Folded all;
    for (int c = slice; c < num_chunks; c += kFoldAhead * slices) {
      float2 pairs[kFoldAhead];
      float2 x[kFoldAhead][2];
#pragma unroll
      for (int i = 0; i < kFoldAhead; ++i) {
        if (c + i * slices >= num_chunks) break;
        pairs[i] = __ldcg(reinterpret_cast<const float2*>(of_row));
        x[i][0] = __ldcg(reinterpret_cast<const float2*>(values));
        x[i][1] =
            __ldcg(reinterpret_cast<const float2*>(values + kPartialStep));
        of_row += step;
        values += step;
      }
#pragma unroll
      for (int i = 0; i < kFoldAhead; ++i) {
        if (c + i * slices >= num_chunks) break;
        all.Add(pairs[i], {x[i][0].x, x[i][0].y, x[i][1].x, x[i][1].y});
      }
    }
    if (slices > 1) {
      slice_values[threadIdx.x] = all.values;
      if (lane % 4 == 0) slice_sums[threadIdx.x / 4] = {all.top, all.sum};
      __syncthreads();
      for (int i = 1; slice == 0 && i < slices; ++i) {
        const int other = threadIdx.x + 32 * i * at_once;
        all.Add(slice_sums[other / 4], slice_values[other]);
      }
      __syncthreads();
    }
    if (slice > 0 || !exists) continue;
    const bool stores = row < item.num_rows;
    const float inverse =
        stores ? InverseSum(args, item, row, {all.top, all.sum}) : 0.0f;
    const uint32_t low =
        sm90::Pack<T>(all.values.x * inverse, all.values.y * inverse);
    const uint32_t high =
        sm90::Pack<T>(all.values.z * inverse, all.values.w * inverse);
    // Of four lanes two get four columns each of the first eight, two of the
    // others.
    const bool odd = lane % 2 != 0;
    const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? low : high, 1);
    if (!stores) continue;
    const int of_sequence = item.row_begin + row;
    char* out = static_cast<char*>(args.out) +
                (item.q_begin + of_sequence / args.group) * args.out_stride +
                2 * (HeadOffset(args, item, of_sequence, kValueDim) +
                     half * kSumColumns + 16 * columns + (odd ? 8 : 0) +
                     lane % 4 / 2 * 4);
    *reinterpret_cast<uint2*>(out) =
        odd ? make_uint2(got, high) : make_uint2(low, got);
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
