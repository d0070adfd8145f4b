// block_summary: what a block of keys says of them, for selection
// (block_selection.h). Blocks are of kSelectBlock positions, whatever the
// cache's blocks are; a summary is a function of its block's keys as the cache
// has them, and of nothing else.
//
//   bounds   | least of each dimension | most of each dimension |  bf16, least
//            rounded down and most up (Quest, arXiv:2406.10774)
//   k-means  | centroid 0 | centroid 1 |  bf16 (routing to clusters,
//            arXiv:2003.05997; here the clusters are those of one block)
//   lsh      | word 0 of each key | word 1 of each key |  uint64: the signs of
//            a random rotation of each key (arXiv:1509.02897)
//
// A summary lies in the cache as kSelectBlock rows of one KV head in a layer of
// its own, those of the block's slots: whatever moves KV moves it too.
#ifndef INLAY_KERNELS_BLOCK_SELECTION_BLOCK_SUMMARY_H_
#define INLAY_KERNELS_BLOCK_SELECTION_BLOCK_SUMMARY_H_

#include <cstddef>
#include <cstdint>

#include "kernels/dispatch.h"
#include "memory/kv/kv_layout.h"

namespace inlay {

inline constexpr int kSelectBlock = 16;
inline constexpr int kCentroids = 2;
inline constexpr int kHashWords = 2;  // uint64 a key
inline constexpr int kHashBits = 64 * kHashWords;
inline constexpr int kMaxSummaryHeadDim = 512;

enum class BlockMethod : uint8_t { kNone, kBounds, kKMeans, kLsh };

// Of one block and KV head.
size_t BlockSummaryBytes(BlockMethod method, int head_dim);
// Of the layer that keeps summaries beside a layer of `keys`.
KvLayerShape BlockSummaryShape(BlockMethod method, const KvLayerShape& keys,
                               DType kv);

struct BlockSummaryDesc {
  BlockMethod method = BlockMethod::kBounds;
  int num_kv_heads = 0;
  int head_dim = 0;
  DType kv = DType::kF32;
};

struct BlockSummaryParams {
  KvLayerView keys;
  KvLayerView summaries;
  int64_t tokens = 0;
  // [tokens], as KvWriteParams has them. The blocks whose last slot is among
  // them are summarised: they are whole now.
  const int64_t* slots = nullptr;
};

using BlockSummaryRow = KernelRow<BlockSummaryDesc, BlockSummaryParams>;
absl::Span<const BlockSummaryRow> BlockSummaryTable();

// INVALID_ARGUMENT naming the first number that is out of range.
absl::Status ValidateBlockSummary(const BlockSummaryDesc& desc);

}  // namespace inlay

#endif  // INLAY_KERNELS_BLOCK_SELECTION_BLOCK_SUMMARY_H_
