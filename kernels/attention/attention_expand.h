// Latent attention in the expanded form (arXiv:2405.04434): every head's keys
// and values are made of the cache's rows, into the workspace, and tiles run
// over those: with DeepSeek's dimensions 192 + 128 multiply-adds for a query, a
// key and a head, where the absorbed form takes 576 + 512, and once 256 * 512
// for a key and a head. Rows lie as unpacked ones do (attention_unpack.h):
// rounds of sequences, in turns of heads where there is not room for all. Which
// sequences it pays for.
// Internal to the plan and to those who launch it.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_EXPAND_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_EXPAND_H_

#include <cstdint>

#include "kernels/attention/attention_plan.h"

namespace inlay {

// What there are kernels for: DeepSeek's, GLM's (from 4.7 on), MiniCPM3's.
inline constexpr ExpandedDims kExpandedDims[] = {
    {128, 64, 128, 512}, {192, 64, 256, 512}, {64, 32, 64, 256}};

// AttentionPlanShape::unpack_bytes where it expands: of DeepSeek's 8k tokens of
// 32 heads.
inline constexpr int64_t kExpandBytes = int64_t{128} << 20;
// Sequences of fewer queries never expand.
inline constexpr int64_t kLeastExpandedTokens = 64;

// A key and a value of one head. What is rotated is read where it is.
constexpr int64_t ExpandedRowBytes(const ExpandedDims& dims) {
  return int64_t{2} * (dims.key_dim + dims.value_dim);
}

// Lets plans of `shape`, that of attention over a cache of latents, have tiles
// for a CUDA row of expanded_attention that serves `dims`.
void LetExpand(const ExpandedDims& dims, AttentionPlanShape& shape);

// Whether the expanded form takes less time for `sequence`, by its queries and
// its length alone.
bool Expands(const AttentionPlanShape& shape,
             const AttentionSequence& sequence);

// SplitIntoQueries, but that sequences stay whole that expand and are no longer
// than what is selected: all their queries see all keys before them.
int64_t SplitUnlessExpanded(const AttentionPlanShape& shape,
                            absl::Span<const AttentionSequence> sequences,
                            AttentionSequence* queries);

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
// tiles' turns, as ExpandCosts has it, of a multiprocessor.
struct ExpandedTurns {
  int heads = 0;
  int64_t time = 0;
};
ExpandedTurns ExpandedTurnsOf(const AttentionPlanShape& shape,
                              const ExpandedWork& work);

// What both forms take, in the time that a multiprocessor has for one multiply
// and add of each of a tile's 128 rows, 56 ps. Public for the test.
struct ExpandCosts {
  int64_t absorbed = 0;
  int64_t expanded = 0;
};
ExpandCosts ExpandCostsOf(const AttentionPlanShape& shape,
                          const AttentionSequence& sequence);

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_EXPAND_H_
