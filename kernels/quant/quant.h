// Block formats of weights: the reference codecs. One folder a format, named as
// in memory/formats.def, with the bit layout and its source. What decode gives
// is what the format means; every fast kernel is judged by it.
#ifndef INLAY_KERNELS_QUANT_QUANT_H_
#define INLAY_KERNELS_QUANT_QUANT_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "memory/dtype.h"

namespace inlay {

// The most elements that a block has; all divide it.
inline constexpr int kMaxBlockElements = 256;

struct BlockGrid;

// No state; every function may run from any number of threads. Blocks may lie
// at any address. Any bytes are a block: decode has no errors (scales that are
// infinite or NaN give such values).
struct BlockCodec {
  DType dtype;
  // blocks * block_elements values, each the exact product and sum that the
  // format defines, rounded as its float32 arithmetic rounds.
  void (*decode)(const std::byte* src, int64_t blocks, float* dst);
  // The nearest blocks by the format's usual method (round to nearest of a
  // scale chosen from the block's range). Values that are not finite give
  // blocks that need not decode to them. Null: there is no encoder.
  void (*encode)(const float* src, int64_t blocks, std::byte* dst);
  // For methods that choose codes themselves: grid.h. Null: there is none.
  const BlockGrid* grid = nullptr;
};

// Every block format, in the order of formats.def.
absl::Span<const BlockCodec* const> BlockCodecs();
// Null for formats that are no block format of weights.
const BlockCodec* FindBlockCodec(DType dtype);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_QUANT_H_
