// What the two Hopper kernels of attention share: the copy engine's view of the
// cache, and their launches. Head dims lie in shared memory as slabs of 64
// columns, 128 bytes a row in the 128-byte swizzle: 16-byte chunk c of row r is
// at r * 128 + (c ^ r % 8) * 16; columns beyond head_dim are zeros.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_SM90_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_SM90_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/attention/attention_items_cuda.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

inline constexpr int kSlabColumns = 64;
inline constexpr int kSlabRowBytes = 128;

// Keys and values of one layer as tensors [block][head][slot][head_dim]; a box
// is `box_rows` slots x a slab's columns. Encoded for each launch (under a
// microsecond): where the cache lies may change between steps.
struct KvTensorMaps {
  CUtensorMap k;
  CUtensorMap v;
};
absl::StatusOr<KvTensorMaps> MakeKvTensorMaps(const KvLayerView& kv,
                                              int box_rows);

// Queries as a tensor [token][head][head_dim]; a box is `box_tokens` tokens x
// `group` heads x a slab's columns.
absl::StatusOr<CUtensorMap> MakeQueryTensorMap(const TensorView& q,
                                               const AttentionDesc& desc,
                                               int box_tokens);

// Slots that a box may have so that boxes divide both a block and a tile.
int BoxRows(int block_size, int tile_keys);

// The plan's items, by the cache's format; the plan's tiles. Errors are the
// device's.
absl::Status LaunchAttentionItems16Bit(const AttentionDesc& desc,
                                       const AttentionParams& params,
                                       CudaStream& stream);
absl::Status LaunchAttentionItemsI8(const AttentionDesc& desc,
                                    const AttentionParams& params,
                                    CudaStream& stream);
absl::Status LaunchAttentionItemsF8(const AttentionDesc& desc,
                                    const AttentionParams& params,
                                    CudaStream& stream);
// The same where desc.selects, by the cache's format.
absl::Status LaunchAttentionSelected16Bit(const AttentionDesc& desc,
                                          const AttentionParams& params,
                                          CudaStream& stream);
absl::Status LaunchAttentionSelectedI8(const AttentionDesc& desc,
                                       const AttentionParams& params,
                                       CudaStream& stream);
absl::Status LaunchAttentionSelectedF8(const AttentionDesc& desc,
                                       const AttentionParams& params,
                                       CudaStream& stream);
#define INLAY_ATTENTION_TILES(kDim)                                       \
  absl::Status LaunchAttentionTilesD##kDim(const AttentionDesc& desc,     \
                                           const AttentionParams& params, \
                                           CudaStream& stream)
INLAY_ATTENTION_TILES(64);
INLAY_ATTENTION_TILES(80);
INLAY_ATTENTION_TILES(96);
INLAY_ATTENTION_TILES(128);
INLAY_ATTENTION_TILES(192);
INLAY_ATTENTION_TILES(256);
#undef INLAY_ATTENTION_TILES

// Writes the blocks of `round`, a cache of i8 or f8_e4m3, as 16 bits to
// `unpacked`, whose heads are the KV heads from `first_head` on:
// attention_unpack_sm90.cu.
absl::Status LaunchAttentionUnpack(const AttentionParams& params,
                                   const AttentionUnpackRound& round,
                                   int first_head, const KvLayerView& unpacked,
                                   CudaStream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_SM90_H_
