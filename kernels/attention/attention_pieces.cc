#include "kernels/attention/attention_pieces.h"

#include <algorithm>

#include "kernels/attention/attention_plan_tiles.h"

namespace inlay {
namespace {

// Partial results of pieces, for each CTA.
constexpr int64_t kSlotsACta = 16;
// Blocks of keys that the kernel goes through between two folds: a fold takes
// about as long as half a block.
constexpr int kPieceBlocks = 8;

int64_t MostSlots(const AttentionPlanShape& shape) {
  return kSlotsACta * shape.grid;
}

// Partial results that hold the rows of so many tokens: of 16 rows each.
int32_t SlotsOf(const AttentionPlanShape& shape, int64_t tokens) {
  return static_cast<int32_t>(
      CeilDiv(tokens * shape.group, kAttentionItemRows));
}

}  // namespace

int AttentionPieceKeys(const AttentionPlanShape& shape) {
  if (shape.tile_tokens == 0 || shape.mma_keys > 0) return 0;
  // Bytes are unpacked for tiles, all of a sequence's at each step.
  if (shape.unpack_bytes > 0) return 0;
  return kPieceBlocks * AttentionTileKeys(shape.head_dim);
}

int64_t MaxPieceTiles(const AttentionPlanShape& shape,
                      const AttentionPlanLimits& limits) {
  return limits.tokens / shape.tile_tokens + limits.sequences +
         MostSlots(shape) / shape.num_kv_heads;
}

ItemRoom PieceRoom(const AttentionPlanShape& shape) {
  ItemRoom room;
  room.counters = 1 + MostSlots(shape) / 2;
  return room;
}

size_t PieceWorkspaceBytes(const AttentionPlanShape& shape) {
  const int64_t own = AttentionTileRows(shape.head_dim) / kAttentionItemRows;
  return static_cast<size_t>(own * shape.grid + MostSlots(shape)) *
         AttentionPieceSlotBytes(shape.head_dim);
}

PieceDealer::PieceDealer(const AttentionPlanShape& shape,
                         absl::Span<const AttentionSequence> sequences)
    : shape_(shape) {
  if (shape.piece_keys == 0) return;
  int64_t keys = 0;
  for (const AttentionSequence& sequence : sequences) {
    for (int32_t token = 0; token < sequence.q_len;
         token += shape.tile_tokens) {
      const int32_t last =
          std::min(token + shape.tile_tokens, sequence.q_len) - 1;
      const KeyRange range = KeysOf(shape, nullptr, sequence, token, last);
      keys += range.end - range.begin;
    }
  }
  share_ = keys * shape.num_kv_heads / shape.grid;
}

void PieceDealer::Add(const AttentionSequence& sequence, int32_t blocks_begin,
                      AttentionTile* tiles, int& num_tiles) {
  const int first_tile = num_tiles;
  AddTiles(shape_, nullptr, sequence, blocks_begin, tiles, num_tiles);
  const int end = num_tiles;
  for (int i = first_tile; i < end; ++i) {
    const AttentionTile whole = tiles[i];
    const int32_t first = whole.key_begin / shape_.piece_keys;
    const int32_t last = (whole.key_end - 1) / shape_.piece_keys;
    const int32_t pieces = last - first + 1;
    // Cutting costs partial results, and does not pay for a little.
    const bool long_one = whole.key_end - whole.key_begin > share_ + share_ / 2;
    const int32_t heads = shape_.num_kv_heads;
    const int32_t slots = SlotsOf(shape_, whole.num_tokens);
    if (pieces < 2 || !long_one ||
        num_slots_ + int64_t{slots} * pieces * heads > MostSlots(shape_)) {
      continue;
    }
    for (int32_t piece = 0; piece < pieces; ++piece) {
      AttentionTile& tile = piece == 0 ? tiles[i] : tiles[num_tiles++];
      tile = whole;
      const int32_t at = last - piece;
      tile.key_begin = std::max(whole.key_begin, at * shape_.piece_keys);
      tile.key_end = std::min(whole.key_end, (at + 1) * shape_.piece_keys);
      tile.pieces = pieces;
      tile.piece = piece;
      tile.slot = num_slots_;
      tile.arrival = num_arrivals_;
    }
    num_slots_ += slots * pieces * heads;
    num_arrivals_ += slots * heads;
  }
}

}  // namespace inlay
