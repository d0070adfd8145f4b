// IndexPlan: which keys the queries of a step may choose from, where CUDA
// kernels can read it. Made on the host once a step for all layers, part of the
// step's image on the device. Pure: no CUDA.
#ifndef INLAY_KERNELS_INDEXER_INDEX_PLAN_H_
#define INLAY_KERNELS_INDEXER_INDEX_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/attention/attention.h"

namespace inlay {

struct IndexQuery {
  int32_t num_keys;  // that it sees, itself included; 0: computed for nobody
  int32_t blocks_begin;  // of its sequence's block table, index into blocks
};
static_assert(sizeof(IndexQuery) == 8);

struct IndexPlan {
  // On the device.
  const IndexQuery* queries = nullptr;  // by row of q
  const int32_t* blocks = nullptr;      // all block tables
  size_t used_bytes = 0;                // of the image
};

// Of the image of a plan for up to so many rows and entries of block tables.
size_t IndexPlanBytes(int64_t rows, int64_t blocks);

// `sequences` may have fewer tokens than `rows`. The image is written to
// `image` and will be at `device`.
IndexPlan BuildIndexPlan(absl::Span<const AttentionSequence> sequences,
                         int block_size, int64_t rows, std::byte* image,
                         const std::byte* device);

}  // namespace inlay

#endif  // INLAY_KERNELS_INDEXER_INDEX_PLAN_H_
