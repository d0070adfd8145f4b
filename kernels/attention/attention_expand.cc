#include "kernels/attention/attention_expand.h"

#include <algorithm>

#include "kernels/attention/attention_cut.h"
#include "kernels/attention/attention_unpack.h"

namespace inlay {
namespace {

// In the time for 128 multiply-adds: 600 TFLOP/s of 132 multiprocessors.

// A key and a tile's rows, absorbed: as many as the latent and its row have
// columns, at 510 TFLOP/s where items are wide; by mma at a tenth of that.
int64_t AbsorbedPairs(const AttentionPlanShape& shape) {
  const ExpandedDims& dims = shape.expanded;
  const int64_t columns = 2 * dims.rank + dims.rope_dim;
  return columns * (shape.wide_items() ? 20 : 200) / 17;
}
// A key and a tile's rows, expanded: of few columns the softmax takes the time.
int64_t ExpandedPairs(const ExpandedDims& dims) {
  return 96 + int64_t{7} * (dims.key_dim + dims.rope_dim + dims.value_dim) / 10;
}
// A token or a key and head through both of its matrices.
int64_t BothMatrices(const ExpandedDims& dims) {
  return int64_t{dims.key_dim + dims.value_dim} * dims.rank /
         kExpandedTileTokens;
}
// A token where it is absorbed: twice that, and what items of short prompts
// leave idle.
int64_t AbsorbedToken(const ExpandedDims& dims) {
  return 2 * BothMatrices(dims) + 10752;
}
// A key, by wgmma.
int64_t ExpandedKey(const ExpandedDims& dims) {
  return BothMatrices(dims) * 5 / 4;
}
// Of a turn: two launches and their ends, about 10 us of all multiprocessors.
constexpr int64_t kTurn = 176000;
// Those that tiles run on. Items of 128 rows take two each.
int64_t Multiprocessors(const AttentionPlanShape& shape) {
  return shape.grid * CeilDiv(shape.item_rows, kAttentionWideItemRows);
}

}  // namespace

void LetExpand(const ExpandedDims& dims, AttentionPlanShape& shape) {
  shape.expanded = dims;
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
  const int64_t pairs = ExpandedPairs(shape.expanded);
  const int64_t sms = Multiprocessors(shape);
  ExpandedTurns best;
  for (int64_t turns = least; turns <= std::min(heads, 2 * least + 2);
       ++turns) {
    const int64_t each = CeilDiv(heads, turns);
    // Whole waves of the longest, or, where tiles differ, equal shares and one
    // more.
    const int64_t waves = CeilDiv(work.tiles * each, sms) * work.longest;
    const int64_t shares = each * work.keys / sms + work.longest;
    const int64_t time =
        CeilDiv(heads, each) * (std::min(waves, shares) * pairs + kTurn);
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
  costs.absorbed = heads * (work.keys * AbsorbedPairs(shape) +
                            sequence.q_len * AbsorbedToken(shape.expanded));
  costs.expanded = Multiprocessors(shape) * ExpandedTurnsOf(shape, work).time +
                   heads * sequence.kv_len * ExpandedKey(shape.expanded);
  return costs;
}

bool Expands(const AttentionPlanShape& shape,
             const AttentionSequence& sequence) {
  if (sequence.q_len < kLeastExpandedTokens) return false;
  const int64_t rows = RoundUp(sequence.kv_len, shape.block_size) *
                       ExpandedRowBytes(shape.expanded);
  if (rows > shape.unpack_bytes) return false;
  const ExpandCosts costs = ExpandCostsOf(shape, sequence);
  return costs.expanded < costs.absorbed;
}

int64_t SplitUnlessExpanded(const AttentionPlanShape& shape,
                            absl::Span<const AttentionSequence> sequences,
                            AttentionSequence* queries) {
  int64_t count = 0;
  for (const AttentionSequence& sequence : sequences) {
    if (shape.expands() && sequence.kv_len <= shape.selects &&
        !BecomesItems(shape, nullptr, sequence)) {
      queries[count++] = sequence;
      continue;
    }
    count += SplitIntoQueries({&sequence, 1}, shape.selects, queries + count,
                              shape.mix);
  }
  return count;
}

}  // namespace inlay
