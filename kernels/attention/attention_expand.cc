#include "kernels/attention/attention_expand.h"

#include <algorithm>

#include "kernels/attention/attention_cut.h"
#include "kernels/attention/attention_unpack.h"

namespace inlay {
namespace {

// In a multiprocessor's time for a key and a tile's 128 rows of one head: 320
// multiply-adds each, 18 ns at 600 TFLOP/s of 132.
// The same pairs absorbed: 1,088 / 320, at 500 TFLOP/s.
constexpr int64_t kAbsorbedPairs = 4;
// A token and head through both of its matrices, where it is absorbed: 6 to 8
// measured; the rest stands for what items of short prompts leave idle.
constexpr int64_t kAbsorbedToken = 40;
// A key and head through them: as many, by wgmma.
constexpr int64_t kExpandedKey = 4;
// Of a turn: two launches and their ends, about 10 us of all multiprocessors.
constexpr int64_t kTurn = 550;

}  // namespace

void LetExpand(AttentionPlanShape& shape) {
  shape.expands = true;
  shape.tile_tokens = kExpandedTileTokens;
  shape.unpack_bytes = kExpandBytes;
}

ExpandedWork ExpandedWorkOf(const AttentionPlanShape& shape,
                            const AttentionSequence& sequence) {
  const int64_t queries = sequence.q_len;
  const int64_t keys = sequence.kv_len;
  ExpandedWork work;
  work.blocks = CeilDiv(keys, shape.block_size);
  work.tiles = CeilDiv(queries, kExpandedTileTokens);
  work.keys =
      CeilDiv(queries * (2 * keys - queries + 1) / 2, kExpandedTileTokens);
  work.longest = keys;
  return work;
}

ExpandedTurns ExpandedTurnsOf(const AttentionPlanShape& shape,
                              const ExpandedWork& work) {
  const int64_t heads = shape.unpacked_heads();
  const int64_t least = CeilDiv(heads, UnpackedHeads(shape, work.blocks));
  ExpandedTurns best;
  for (int64_t turns = least; turns <= std::min(heads, 2 * least + 2);
       ++turns) {
    const int64_t each = CeilDiv(heads, turns);
    // Whole waves of the longest, or, where tiles differ, equal shares and one
    // more.
    const int64_t waves = CeilDiv(work.tiles * each, shape.grid) * work.longest;
    const int64_t shares = each * work.keys / shape.grid + work.longest;
    const int64_t time =
        CeilDiv(heads, each) * (std::min(waves, shares) + kTurn);
    if (best.heads == 0 || time < best.time) {
      best = {static_cast<int>(each), time};
    }
  }
  return best;
}

ExpandCosts ExpandCostsOf(const AttentionPlanShape& shape,
                          const AttentionSequence& sequence) {
  const int64_t heads = shape.unpacked_heads();
  const ExpandedWork work = ExpandedWorkOf(shape, sequence);
  ExpandCosts costs;
  costs.absorbed =
      heads * (work.keys * kAbsorbedPairs + sequence.q_len * kAbsorbedToken);
  costs.expanded = shape.grid * ExpandedTurnsOf(shape, work).time +
                   heads * sequence.kv_len * kExpandedKey;
  return costs;
}

bool Expands(const AttentionPlanShape& shape,
             const AttentionSequence& sequence) {
  if (sequence.q_len < kLeastExpandedTokens) return false;
  const int64_t rows =
      RoundUp(sequence.kv_len, shape.block_size) * ExpandedRowBytes();
  if (rows > shape.unpack_bytes) return false;
  const ExpandCosts costs = ExpandCostsOf(shape, sequence);
  return costs.expanded < costs.absorbed;
}

}  // namespace inlay
