#include "kernels/attention/attention_unpack.h"

#include <algorithm>

namespace inlay {
namespace {

// Keys and values of a block of one KV head, 16 bits each.
int64_t BlockBytes(const AttentionPlanShape& shape) {
  if (shape.expands()) {
    return ExpandedRowBytes(shape.expanded) * shape.block_size;
  }
  return int64_t{4} * shape.head_dim * shape.block_size;
}

}  // namespace

KeyRange BlocksSeen(const AttentionPlanShape& shape, const AttentionMask* mask,
                    const AttentionSequence& sequence) {
  const KeyRange keys = KeysOf(shape, mask, sequence, 0, sequence.q_len - 1);
  if (keys.begin == keys.end) return {};
  return {keys.begin / shape.block_size, CeilDiv(keys.end, shape.block_size)};
}

bool CanBeTiles(const AttentionPlanShape& shape, const AttentionMask* mask,
                const AttentionSequence& sequence) {
  if (shape.unpack_bytes == 0) return true;
  if (shape.expands()) return mask == nullptr && Expands(shape, sequence);
  if (sequence.q_len <= shape.tile_tokens &&
      2 * RowTiles(shape, sequence.q_len) * shape.num_kv_heads <= shape.grid) {
    return false;
  }
  const KeyRange seen = BlocksSeen(shape, mask, sequence);
  return (seen.end - seen.begin) * BlockBytes(shape) <= shape.unpack_bytes;
}

int UnpackedHeads(const AttentionPlanShape& shape, int64_t blocks) {
  const int heads = shape.unpacked_heads();
  if (blocks == 0) return heads;
  const int64_t most = std::clamp<int64_t>(
      shape.unpack_bytes / (blocks * BlockBytes(shape)), 1, heads);
  const int64_t turns = CeilDiv(heads, most);
  return static_cast<int>(CeilDiv(heads, turns));
}

int64_t MaxUnpackedBytes(const AttentionPlanShape& shape, int64_t tokens) {
  const bool many = shape.expands()
                        ? tokens >= kLeastExpandedTokens
                        : tokens * shape.group > kAttentionSplitRows;
  const bool tiles = shape.tile_tokens > 0 && many;
  return tiles ? shape.unpack_bytes : 0;
}

int32_t UnpackRounds::Add(const AttentionSequence& sequence,
                          int32_t blocks_begin, AttentionPlan& plan) {
  const KeyRange seen = BlocksSeen(shape_, mask_, sequence);
  const auto count = static_cast<int32_t>(seen.end - seen.begin);
  if (plan.rounds.empty() ||
      (plan.rounds.back().num_blocks + count) * BlockBytes(shape_) >
          shape_.unpack_bytes) {
    EndRound(plan);
    plan.rounds.push_back({plan.num_tiles, 0, end_, 0});
    work_ = {};
  }
  if (shape_.expands()) {
    const ExpandedWork more = ExpandedWorkOf(shape_, sequence);
    work_.blocks += more.blocks;
    work_.tiles += more.tiles;
    work_.keys += more.keys;
    work_.longest = std::max(work_.longest, more.longest);
  }
  AttentionUnpackRound& round = plan.rounds.back();
  int32_t* table = blocks_ + blocks_begin;
  const int32_t first = round.num_blocks;
  for (int64_t i = seen.begin; i < seen.end; ++i) {
    blocks_[end_++] = table[i];
    if (!shape_.expands()) table[i] = round.num_blocks;
    ++round.num_blocks;
  }
  return first;
}

int32_t UnpackRounds::Finish(AttentionPlan& plan) {
  EndRound(plan);
  return end_;
}

void UnpackRounds::EndRound(AttentionPlan& plan) const {
  if (plan.rounds.empty()) return;
  AttentionUnpackRound& round = plan.rounds.back();
  round.num_tiles = plan.num_tiles - round.first_tile;
  round.heads = shape_.expands() ? ExpandedTurnsOf(shape_, work_).heads
                                 : UnpackedHeads(shape_, round.num_blocks);
  const int64_t bytes = round.num_blocks * round.heads * BlockBytes(shape_);
  plan.unpacked_bytes =
      std::max(plan.unpacked_bytes, static_cast<size_t>(bytes));
}

}  // namespace inlay
