// SeenBlocks: few queries that see some blocks of the cache, as queries of
// shorter sequences: those of the blocks that at least one of them sees. So a
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

// Sequences of more queries stay as they are: together they see most of what
// lies between, and tiles have lists of their own.
inline constexpr int kMostGatheringQueries = 64;

// A step's sequences and its mask, changed where that is possible: a sequence
// of few queries, the last of which sees the last key, and which have rows of
// bits of whole blocks of the cache. Keys keep their order, and queries see
// what they saw, so results are those of the mask but for the order of sums,
// and depend on nothing but the sequence; distances between positions are lost
// (ALiBi). Thread-compatible.
class SeenBlocks {
 public:
  // `sequences` have block tables and no window; `mask` was compiled for them.
  void Gather(absl::Span<const AttentionSequence> sequences, int block_size,
              const AttentionMask& mask);

  // Valid until the next Gather.
  absl::Span<const AttentionSequence> sequences() const { return sequences_; }
  const AttentionMask& mask() const { return mask_; }

 private:
  // Queries one after another that have the same bits, which are those of
  // blocks [first, last].
  struct Group {
    int32_t bits;
    int32_t first;
    int32_t last;
  };

  bool Bit(int32_t bits, int32_t block) const {
    const uint32_t word = mask_.bits[static_cast<size_t>(bits + block / 32)];
    return (word >> block % 32 & 1) != 0;
  }
  void GatherSequence(int block_size, AttentionSequence& sequence);
  // To groups_, and to union_ the blocks of bits that any of `rows` sees.
  void FindUnion(absl::Span<const AttentionRowKeys> rows);
  // Bit j becomes that of the union's block j.
  void CompactBits(int32_t bits);
  // Keys of the sequence to those of the union; the bits are the union's.
  void Translate(AttentionRowKeys& keys) const;

  std::vector<AttentionSequence> sequences_;
  std::vector<int32_t> blocks_;
  AttentionMask mask_;
  // Of the sequence at hand.
  std::vector<Group> groups_;
  std::vector<int32_t> union_;
};

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_GATHER_H_
