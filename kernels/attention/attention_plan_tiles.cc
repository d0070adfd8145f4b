#include "kernels/attention/attention_plan_tiles.h"

#include <algorithm>

#include "kernels/attention/attention_cut.h"

namespace inlay {

void AddTiles(const AttentionPlanShape& shape, const AttentionMask* mask,
              const AttentionSequence& sequence, int32_t blocks_begin,
              AttentionTile* tiles, int& num_tiles) {
  for (int32_t token = 0; token < sequence.q_len; token += shape.tile_tokens) {
    const int32_t count = std::min(shape.tile_tokens, sequence.q_len - token);
    const KeyRange keys =
        KeysOf(shape, mask, sequence, token, token + count - 1);
    AttentionTile tile = {};
    tile.q_row = sequence.q_begin + token;
    tile.num_tokens = count;
    tile.position = sequence.kv_len - sequence.q_len + token;
    tile.key_begin = static_cast<int32_t>(keys.begin);
    tile.key_end = static_cast<int32_t>(keys.end);
    tile.blocks_begin = blocks_begin;
    tiles[num_tiles++] = tile;
  }
}

int64_t MaxKeyRuns(const AttentionPlanShape& shape, const AttentionMask& mask,
                   const AttentionSequence& sequence) {
  if (BecomesItems(shape, &mask, sequence)) return 0;
  const int block_keys = shape.tile_keys();
  int64_t runs = 0;
  for (int32_t token = 0; token < sequence.q_len; token += shape.tile_tokens) {
    runs +=
        MaxAttentionKeyRuns(mask, sequence.q_begin + token,
                            std::min(shape.tile_tokens, sequence.q_len - token),
                            sequence.kv_len, block_keys);
  }
  return runs;
}

size_t WriteMask(const AttentionPlan& plan, const AttentionMask& mask,
                 AttentionTile* tiles, std::byte* image) {
  const AttentionPlanLayout& layout = plan.layout;
  std::copy(mask.rows.begin(), mask.rows.end(),
            reinterpret_cast<AttentionRowKeys*>(image + layout.mask_rows));
  std::copy(mask.bits.begin(), mask.bits.end(),
            reinterpret_cast<uint32_t*>(image + layout.mask_bits));
  auto* runs = reinterpret_cast<AttentionKeyRun*>(image + layout.runs);
  int64_t count = 0;
  for (int i = 0; i < plan.num_tiles; ++i) {
    AttentionTile& tile = tiles[i];
    tile.runs_begin = static_cast<int32_t>(count);
    count += ListAttentionKeyRuns(mask, tile.q_row, tile.num_tokens,
                                  plan.shape.tile_keys(), runs + count,
                                  tile.num_blocks);
  }
  return static_cast<size_t>(count) * sizeof(AttentionKeyRun);
}

void SortTiles(const AttentionPlan& plan, AttentionTile* tiles) {
  const auto cost = [&](const AttentionTile& tile) {
    return plan.masked ? tile.num_blocks : tile.key_end - tile.key_begin;
  };
  const auto sort = [&](int32_t first, int32_t count) {
    std::sort(tiles + first, tiles + first + count,
              [&](const AttentionTile& a, const AttentionTile& b) {
                const int32_t a_cost = cost(a);
                const int32_t b_cost = cost(b);
                return a_cost != b_cost ? a_cost > b_cost : a.q_row < b.q_row;
              });
  };
  if (plan.shape.unpack_bytes == 0) return sort(0, plan.num_tiles);
  for (const AttentionUnpackRound& round : plan.rounds) {
    sort(round.first_tile, round.num_tiles);
  }
}

}  // namespace inlay
