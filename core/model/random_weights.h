// Random weights: a draw that looks like a freshly initialised network (mean 0,
// standard deviation 0.02), reproducible from a seed and the tensor's name and
// fast enough for gigabytes. Not for anything that needs good randomness.
#ifndef INLAY_CORE_MODEL_RANDOM_WEIGHTS_H_
#define INLAY_CORE_MODEL_RANDOM_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/quant/quant.h"
#include "memory/device/thread_pool.h"
#include "memory/dtype.h"

namespace inlay {

// Fills `elements` values of `dtype` (f32, f16 or bf16) at `data`, on `pool`'s
// threads: those from `first`, an even number, on. Values depend on dtype,
// seed, name and their index only; only the last of all may be an odd one out.
void DrawWeights(uint64_t seed, std::string_view name, DType dtype,
                 int64_t elements, void* data, ThreadPool& pool,
                 int64_t first = 0);

// The same in blocks [first, first + blocks) of a block format: each is one of
// some hundred that were drawn and encoded, so that they come as fast as memory
// takes them. UNIMPLEMENTED where the format has no encoder.
absl::Status DrawBlocks(uint64_t seed, std::string_view name,
                        const BlockCodec& codec, int64_t first, int64_t blocks,
                        std::byte* data, ThreadPool& pool);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_RANDOM_WEIGHTS_H_
