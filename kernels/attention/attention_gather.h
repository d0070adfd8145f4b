// SeenBlocks: single queries that see some blocks of the cache, as
// queries that see all keys of shorter sequences: those of these blocks. So a
// plan shares out what is seen, and what lies between is neither read nor
// counted. Pure host code: no device, no state.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_GATHER_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_GATHER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_mask.h"

namespace inlay {

// A step's sequences and its mask, changed where that is possible: a sequence
// of one query, which sees its own key last and has a row of bits of whole
// blocks of the cache. Keys keep their order, so results are those of the mask
// but for the order of sums, and depend on nothing but the sequence; distances
// between positions are lost (ALiBi). Thread-compatible.
class SeenBlocks {
 public:
  // `sequences` have block tables and no window; `mask` was compiled for them.
  void Gather(absl::Span<const AttentionSequence> sequences, int block_size,
              const AttentionMask& mask);

  // Valid until the next Gather.
  absl::Span<const AttentionSequence> sequences() const { return sequences_; }
  const AttentionMask& mask() const { return mask_; }

 private:
  std::vector<AttentionSequence> sequences_;
  std::vector<int32_t> blocks_;
  AttentionMask mask_;
};

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_GATHER_H_
