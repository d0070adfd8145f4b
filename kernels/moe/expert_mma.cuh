// What the kernels of expert_linear that use the tensor cores share: a tile of
// 16 rows of an expert's matrix against kBlocks times 8 of its slots by
// mma.m16n8k16 (gemv_mma.cuh), and the way out of the accumulators.
//
// Two kernels from it: for few slots a block has one tile and 8 slots and its
// warps share K, so that all of the chip reads weights; for many each warp has
// a tile of its own and 64 slots, whose x its block reads from the first-level
// cache. Accumulation: float32; a slot's sum has the same order whatever lies
// beside it.
#ifndef INLAY_KERNELS_MOE_EXPERT_MMA_CUH_
#define INLAY_KERNELS_MOE_EXPERT_MMA_CUH_

#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/gemv_mma.cuh"
#include "kernels/moe/expert_items.cuh"

namespace inlay {

inline constexpr int kExpertWarps = 4;
inline constexpr int kExpertTile = 16;  // rows of w
inline constexpr int kExpertBlock = 8;  // slots of one mma
inline constexpr int kManyExpertBlocks = 8;

// How a kernel shares its work out.
template <bool kMany>
struct ExpertCut {
  static constexpr int kBlocks = kMany ? kManyExpertBlocks : 1;
  static constexpr int kSlots = kBlocks * kExpertBlock;
  // Tiles of a block, and the warps that share one's K.
  static constexpr int kTiles = kMany ? kExpertWarps : 1;
  static constexpr int kShare = kMany ? 1 : kExpertWarps;

  __device__ static int64_t BlocksOfN(int64_t n) {
    constexpr int kColumns = kTiles * kExpertTile;
    return (n + kColumns - 1) / kColumns;
  }
  __device__ static int64_t Tile(int64_t block_of_n) {
    return block_of_n * kTiles + (kMany ? threadIdx.x / 32 : 0);
  }
  __device__ static int Part() { return kMany ? 0 : threadIdx.x / 32; }
  static int64_t GridBlocks(const ExpertItems& items, int64_t n) {
    constexpr int kColumns = kTiles * kExpertTile;
    return (n + kColumns - 1) / kColumns * items.count;
  }
};

// A lane's rows of x, one a block of 8 slots; null beyond the item's.
template <typename T, int kBlocks>
__device__ void FindExpertInputs(const CudaMatrix<const T>& x,
                                 const ExpertItems& items,
                                 const ExpertItem& item,
                                 const T* (&rows)[kBlocks]) {
  const int own = threadIdx.x % 32 / 4;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const int i = b * kExpertBlock + own;
    rows[b] = i < item.rows
                  ? x.row(ExpertItem::Source(items, item.Slot(items, i)))
                  : nullptr;
  }
}

// Writes the outputs of the tile at rows [16 tile, ..) of w. A lane's sums are
// of rows g, g + 8 and slots 2 t, 2 t + 1.
template <typename Y, bool kMany>
__device__ void StoreExpertTile(
    const float (&sums)[ExpertCut<kMany>::kBlocks][4], const ExpertItems& items,
    const ExpertItem& item, int64_t tile, const float* bias, int64_t n,
    const CudaMatrix<Y>& y) {
  const int lane = threadIdx.x % 32;
  const auto store = [&](int i, int64_t row, float sum) {
    if (i >= item.rows || row >= n) return;
    if (bias != nullptr) sum += bias[item.expert * n + row];
    y.row(item.Slot(items, i))[row] = FromFloat<Y>(sum);
  };
  if constexpr (kMany) {
#pragma unroll
    for (int b = 0; b < kManyExpertBlocks; ++b) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        store(b * kExpertBlock + lane % 4 * 2 + j % 2,
              tile * kExpertTile + lane / 4 + j / 2 * 8, sums[b][j]);
      }
    }
  } else {
    // The warps' shares, added in ascending order.
    __shared__ float partial[kExpertWarps][kExpertBlock][kExpertTile];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      partial[threadIdx.x / 32][lane % 4 * 2 + j % 2][lane / 4 + j / 2 * 8] =
          sums[0][j];
    }
    __syncthreads();
    static_assert(kExpertWarps * 32 == kExpertBlock * kExpertTile);
    const int row = threadIdx.x % kExpertTile;
    const int i = threadIdx.x / kExpertTile;
    float sum = 0.0f;
#pragma unroll
    for (int part = 0; part < kExpertWarps; ++part)
      sum += partial[part][i][row];
    store(i, tile * kExpertTile + row, sum);
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_EXPERT_MMA_CUH_
