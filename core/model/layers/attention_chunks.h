// Chunked attention (Llama 4): a query sees the keys of its own chunk of so
// many positions, up to itself. As sequences: each chunk that has queries in a
// step is a sequence of its own, whose positions begin with the chunk and whose
// blocks are the chunk's. Kernels need to know nothing of it, and read nothing
// before the chunk.
#ifndef INLAY_CORE_MODEL_LAYERS_ATTENTION_CHUNKS_H_
#define INLAY_CORE_MODEL_LAYERS_ATTENTION_CHUNKS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/attention/attention.h"

namespace inlay {

// Sequences that `sequences` ones of `tokens` tokens in all may become.
int64_t MaxChunkSequences(int64_t tokens, int64_t sequences, int64_t chunk);

// Writes them to `out`, which has room for MaxChunkSequences(); returns how
// many. `chunk` is a multiple of `block_size`.
int64_t SplitIntoChunks(absl::Span<const AttentionSequence> sequences,
                        int32_t chunk, int32_t block_size,
                        AttentionSequence* out);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_ATTENTION_CHUNKS_H_
