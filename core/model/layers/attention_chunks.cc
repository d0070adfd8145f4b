#include "core/model/layers/attention_chunks.h"

#include <algorithm>

namespace inlay {

// A sequence's tokens touch at most q_len / chunk + 2 chunks.
int64_t MaxChunkSequences(int64_t tokens, int64_t sequences, int64_t chunk) {
  return std::min(tokens, 2 * sequences + tokens / chunk);
}

int64_t SplitIntoChunks(absl::Span<const AttentionSequence> sequences,
                        int32_t chunk, int32_t block_size,
                        AttentionSequence* out) {
  int64_t count = 0;
  for (const AttentionSequence& sequence : sequences) {
    int32_t position = sequence.kv_len - sequence.q_len;
    int32_t row = sequence.q_begin;
    while (position < sequence.kv_len) {
      const int32_t begin = position / chunk * chunk;
      // Not begin + chunk, which may be out of range.
      const int32_t end =
          begin +
          std::min(chunk, static_cast<int32_t>(sequence.kv_len - begin));
      AttentionSequence& part = out[count++];
      part.q_begin = row;
      part.q_len = end - position;
      part.kv_len = end - begin;
      part.blocks = sequence.blocks + begin / block_size;
      row += part.q_len;
      position = end;
    }
  }
  return count;
}

}  // namespace inlay
