// Latent attention in the expanded form (arXiv:2405.04434): every head's keys
// and values are made of the cache's rows, into the workspace, and tiles run
// over those: 192 + 128 multiply-adds for a query, a key and a head, where the
// absorbed form takes 576 + 512, and once 256 * 512 for a key and a head. Rows
// lie as unpacked ones do (attention_unpack.h): rounds of sequences, in turns
// of heads where there is not room for all. Which sequences it pays for.
// Internal to the plan and to those who launch it.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_EXPAND_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_EXPAND_H_

#include <cstdint>

#include "kernels/attention/attention_plan.h"

namespace inlay {

// The one shape that there are kernels for, DeepSeek's: columns of keys that
// come of the latent, that are rotated and shared by all heads, of values; of
// the latent.
inline constexpr int kExpandedKeyDim = 128;
inline constexpr int kExpandedRopeDim = 64;
inline constexpr int kExpandedValueDim = 128;
inline constexpr int kExpandedRank = 512;

// AttentionPlanShape::unpack_bytes where it expands: 8k tokens of 32 heads.
inline constexpr int64_t kExpandBytes = int64_t{128} << 20;
// Sequences of fewer queries never expand.
inline constexpr int64_t kLeastExpandedTokens = 64;

// A key and a value of one head. What is rotated is read where it is.
constexpr int64_t ExpandedRowBytes() {
  return int64_t{2} * (kExpandedKeyDim + kExpandedValueDim);
}

// Lets plans of `shape`, that of attention over a cache of latents, have tiles
// for a CUDA row of expanded_attention.
void LetExpand(AttentionPlanShape& shape);

// Whether the expanded form takes less time for `sequence`, by its queries and
// its length alone.
bool Expands(const AttentionPlanShape& shape,
             const AttentionSequence& sequence);

// What tiles of a sequence, or of all sequences of a round, do for one head.
struct ExpandedWork {
  int64_t blocks = 0;  // of the cache
  int64_t tiles = 0;
  int64_t keys = 0;     // that they see, one tile after another
  int64_t longest = 0;  // those of the tile that sees most
};
ExpandedWork ExpandedWorkOf(const AttentionPlanShape& shape,
                            const AttentionSequence& sequence);

// Heads in equal turns: as many at a time as there is room for, or fewer where
// that leaves fewer multiprocessors idle at turns' ends. `time` is that of all
// tiles' turns, as in ExpandCosts, of a multiprocessor.
struct ExpandedTurns {
  int heads = 0;
  int64_t time = 0;
};
ExpandedTurns ExpandedTurnsOf(const AttentionPlanShape& shape,
                              const ExpandedWork& work);

// What both forms take, in the time that a multiprocessor has for a key and a
// tile's rows of one head. Public for the test.
struct ExpandCosts {
  int64_t absorbed = 0;
  int64_t expanded = 0;
};
ExpandCosts ExpandCostsOf(const AttentionPlanShape& shape,
                          const AttentionSequence& sequence);

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_EXPAND_H_
