// attention on GPUs without Hopper's instructions: the shapes of its tiles,
// which plans and kernels share, and their launches.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_MMA_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_MMA_H_

#include "absl/status/status.h"
#include "kernels/attention/attention_plan.h"
#include "memory/device/device.h"

namespace inlay {

class CudaStream;

// Rows of a tile: tokens x the query heads of one KV head.
inline constexpr int kMmaTileRows = 128;

// Keys that the kernel takes at a time: as many as registers hold scores of.
constexpr int MmaTileKeys(int head_dim) { return head_dim <= 192 ? 64 : 32; }

// Slots of a cache block that the kernels read at a time; block sizes are
// multiples of it, or everything becomes items of cuda_plain's.
inline constexpr int kMmaSlots = 16;

// The plan's items, over caches of the queries' type and of i8 (head_dim 64, 96
// and 128). Errors are the device's.
absl::Status LaunchAttentionItemsMma(
    const AttentionDesc& desc, const AttentionParams& params,
    CudaStream& stream);  // attention_items_mma.cu
absl::Status LaunchAttentionItemsI8Mma(
    const AttentionDesc& desc, const AttentionParams& params,
    CudaStream& stream);  // attention_items_i8_mma.cu

// The plan's tiles. Errors are the device's.
#define INLAY_ATTENTION_TILES_MMA(kDim)                                      \
  absl::Status LaunchAttentionTilesMmaD##kDim(const AttentionDesc& desc,     \
                                              const AttentionParams& params, \
                                              CudaStream& stream)
INLAY_ATTENTION_TILES_MMA(64);
INLAY_ATTENTION_TILES_MMA(80);
INLAY_ATTENTION_TILES_MMA(96);
INLAY_ATTENTION_TILES_MMA(128);
INLAY_ATTENTION_TILES_MMA(192);
INLAY_ATTENTION_TILES_MMA(256);
#undef INLAY_ATTENTION_TILES_MMA

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_MMA_H_
