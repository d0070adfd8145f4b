// AttentionPlan: tiles of prompts, and the rounds that unpack what they see.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "kernels/attention/attention_plan.h"
#include "kernels/attention/attention_unpack.h"
#include "tests/support/attention_plan_util.h"

namespace inlay::testing {
namespace {

TEST(AttentionPlanTest, TilesCoverLongRunsLongestFirst) {
  const AttentionPlanShape shape = Shape(2, 6, 21, 100);
  Batch batch;
  batch.Add(1, 50);
  batch.Add(100, 300);
  batch.Add(0, 10);
  batch.Add(10, 10);
  batch.Add(45, 45);
  batch.Place();
  const Built built(shape, batch);
  CheckItems(shape, batch, built);
  EXPECT_EQ(built.plan.num_tiles, 5 + 3);
  const auto* tiles = built.At<AttentionTile>(built.plan.layout.tiles);
  std::map<int, AttentionTile> by_row;
  for (int i = 0; i < built.plan.num_tiles; ++i) {
    by_row[tiles[i].q_row] = tiles[i];
    if (i == 0) continue;
    EXPECT_LE(tiles[i].key_end - tiles[i].key_begin,
              tiles[i - 1].key_end - tiles[i - 1].key_begin);
  }
  for (const auto& [begin, q_len, kv_len] :
       {std::tuple{1, 100, 300}, {111, 45, 45}}) {
    for (int token = 0; token < q_len; token += 21) {
      const AttentionTile& tile = by_row.at(begin + token);
      EXPECT_EQ(tile.num_tokens, std::min(21, q_len - token));
      EXPECT_EQ(tile.position, kv_len - q_len + token);
      EXPECT_EQ(tile.key_end, tile.position + tile.num_tokens);
      EXPECT_EQ(tile.key_begin, std::max(0, tile.position + 1 - 100));
    }
  }
}

// The rounds of a plan: each tile is in one, and finds the cache's blocks of
// its keys in what its round unpacks, nothing twice.
void CheckRounds(const AttentionPlanShape& shape, const Batch& batch,
                 const Built& built) {
  const AttentionPlan& plan = built.plan;
  const auto* blocks = built.At<int32_t>(plan.layout.blocks);
  const auto* tiles = built.At<AttentionTile>(plan.layout.tiles);
  const int64_t block_bytes = int64_t{4} * shape.head_dim * kBlockSize;
  int next_tile = 0;
  int64_t unpacked = 0;
  for (const AttentionUnpackRound& round : plan.rounds) {
    EXPECT_EQ(round.first_tile, next_tile);
    next_tile += round.num_tiles;
    unpacked += round.num_blocks;
    const int heads = UnpackedHeads(shape, round.num_blocks);
    ASSERT_GE(heads, 1);
    ASSERT_LE(heads, shape.num_kv_heads);
    const auto bytes =
        static_cast<size_t>(round.num_blocks * heads * block_bytes);
    EXPECT_LE(bytes, static_cast<size_t>(shape.unpack_bytes));
    EXPECT_LE(bytes, plan.unpacked_bytes);
    for (int i = round.first_tile; i < next_tile; ++i) {
      const AttentionTile& tile = tiles[i];
      if (i > round.first_tile) {
        EXPECT_LE(tile.key_end - tile.key_begin,
                  tiles[i - 1].key_end - tiles[i - 1].key_begin);
      }
      const auto owner = std::find_if(
          batch.sequences.begin(), batch.sequences.end(), [&](const auto& s) {
            return tile.q_row >= s.q_begin && tile.q_row < s.q_begin + s.q_len;
          });
      for (int b = tile.key_begin / kBlockSize; b * kBlockSize < tile.key_end;
           ++b) {
        const int at = blocks[tile.blocks_begin + b];
        ASSERT_GE(at, 0);
        ASSERT_LT(at, round.num_blocks);
        ASSERT_EQ(blocks[round.first_block + at], owner->blocks[b]);
      }
    }
  }
  EXPECT_EQ(next_tile, plan.num_tiles);
  int64_t seen = 0;
  for (const AttentionSequence& sequence : batch.sequences) {
    if (!IsTiles(shape, sequence)) continue;
    const auto [first, end] = SeenBlocks(shape, sequence);
    seen += end - first;
  }
  EXPECT_EQ(unpacked, seen);
  const auto sequences = static_cast<int64_t>(batch.sequences.size());
  const int64_t tokens =
      batch.sequences.back().q_begin + batch.sequences.back().q_len;
  AttentionPlanShape not_unpacked = shape;
  not_unpacked.unpack_bytes = 0;
  EXPECT_LE(AttentionWorkspaceBytes(not_unpacked, sequences, tokens) +
                plan.unpacked_bytes,
            AttentionWorkspaceBytes(shape, sequences, tokens));
}

TEST(AttentionPlanTest, RoundsUnpackWhatTilesSee) {
  std::mt19937 rng(4);
  size_t most_rounds = 0;
  for (int round = 0; round < 200; ++round) {
    const int group = 1 + static_cast<int>(rng() % 9);
    AttentionPlanShape shape =
        Shape(1 + static_cast<int>(rng() % 9), group, 128 / group,
              rng() % 3 == 0 ? 1 + static_cast<int>(rng() % 3000) : 0);
    const int most = 64 << rng() % 8;  // blocks
    shape.unpack_bytes = int64_t{most} * 4 * 128 * kBlockSize;
    Batch batch;
    const int sequences = 1 + static_cast<int>(rng() % 30);
    for (int s = 0; s < sequences; ++s) {
      const int q_len = rng() % 2 == 0 ? static_cast<int>(rng() % 600) : 1;
      const int range = rng() % 8 == 0 ? 30000 : 900;
      batch.Add(q_len, q_len + static_cast<int>(rng() % range));
    }
    batch.Place();
    SCOPED_TRACE(::testing::Message() << "round " << round);
    const Built built(shape, batch);
    CheckItems(shape, batch, built);
    CheckRounds(shape, batch, built);
    most_rounds = std::max(most_rounds, built.plan.rounds.size());
    if (HasFailure()) return;
  }
  EXPECT_GT(most_rounds, 4);
}

// Heads in equal turns where not all fit.
TEST(AttentionPlanTest, RoomToUnpack) {
  AttentionPlanShape shape = Shape(8, 4, 32);
  const int64_t block_bytes = 4 * 128 * kBlockSize;
  shape.unpack_bytes = 100 * block_bytes;
  EXPECT_EQ(UnpackedHeads(shape, 0), 8);
  EXPECT_EQ(UnpackedHeads(shape, 12), 8);
  EXPECT_EQ(UnpackedHeads(shape, 13), 4);  // 7 would fit
  EXPECT_EQ(UnpackedHeads(shape, 33), 3);
  EXPECT_EQ(UnpackedHeads(shape, 34), 2);
  EXPECT_EQ(UnpackedHeads(shape, 100), 1);
  const auto more = [&](int64_t sequences, int64_t tokens) {
    AttentionPlanShape not_unpacked = shape;
    not_unpacked.unpack_bytes = 0;
    return static_cast<int64_t>(
        AttentionWorkspaceBytes(shape, sequences, tokens) -
        AttentionWorkspaceBytes(not_unpacked, sequences, tokens));
  };
  EXPECT_EQ(more(1, 1000), shape.unpack_bytes);
  EXPECT_EQ(more(16, 16), 0);  // items
  shape.tile_tokens = 0;
  EXPECT_EQ(more(1, 1000), 0);
}

}  // namespace
}  // namespace inlay::testing
