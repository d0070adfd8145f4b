// AttentionPlan of pieces: every query sees each of its keys once, pieces lie
// at fixed positions, and partial results and counters are nobody else's.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "kernels/attention/attention_plan.h"
#include "tests/support/attention_plan_util.h"

namespace inlay::testing {
namespace {

struct Owned {
  std::set<int> slots;
  std::set<int> arrivals;
};

void CheckPiece(const AttentionPlanShape& shape, const AttentionTile& tile,
                Owned& owned) {
  EXPECT_EQ(tile.key_begin / shape.piece_keys,
            (tile.key_end - 1) / shape.piece_keys);
  EXPECT_LT(tile.piece, tile.pieces);
  const int warps = (tile.num_tokens * shape.group + 15) / 16;
  for (int head = 0; head < shape.num_kv_heads; ++head) {
    for (int warp = 0; warp < warps; ++warp) {
      const int slot =
          tile.slot + (head * tile.pieces + tile.piece) * warps + warp;
      EXPECT_TRUE(owned.slots.insert(slot).second) << "slot " << slot;
      if (tile.piece > 0) continue;
      const int arrival = tile.arrival + head * warps + warp;
      EXPECT_TRUE(owned.arrivals.insert(arrival).second);
    }
  }
}

TEST(AttentionPiecesTest, EveryQuerySeesEachKeyOnce) {
  std::mt19937 rng(3);
  int cut = 0;
  for (int round = 0; round < 200; ++round) {
    const int group = 1 + static_cast<int>(rng() % 9);
    AttentionPlanShape shape =
        Shape(1 << rng() % 4, group, 128 / group,
              rng() % 3 == 0 ? 1 + static_cast<int>(rng() % 3000) : 0);
    shape.piece_keys = AttentionPieceKeys(shape);
    ASSERT_EQ(shape.piece_keys, 1024);
    const bool graph = rng() % 3 == 0;
    Batch batch;
    const int sequences = 1 + static_cast<int>(rng() % 20);
    for (int s = 0; s < sequences; ++s) {
      const int q_len =
          !graph && rng() % 4 == 0 ? static_cast<int>(rng() % 400) : 1;
      const int range = rng() % 4 == 0 ? 60000 : 900;
      batch.Add(q_len, q_len + static_cast<int>(rng() % range));
    }
    batch.Place();
    SCOPED_TRACE(::testing::Message() << "round " << round);
    const Built built(shape, batch, graph);
    EXPECT_FALSE(built.plan.run_items);
    EXPECT_EQ(built.At<int32_t>(built.plan.layout.counters)[2],
              built.plan.num_tiles);
    const auto* tiles = built.At<AttentionTile>(built.plan.layout.tiles);
    EXPECT_LE(static_cast<size_t>(built.plan.num_tiles) * sizeof(AttentionTile),
              built.plan.layout.blocks - built.plan.layout.tiles);
    Owned owned;
    // By tile: its keys, and what it should have.
    std::map<int, std::vector<std::pair<int, int>>> keys;
    for (int i = 0; i < built.plan.num_tiles; ++i) {
      keys[tiles[i].q_row].push_back({tiles[i].key_begin, tiles[i].key_end});
      if (tiles[i].pieces > 1) {
        CheckPiece(shape, tiles[i], owned);
        ++cut;
      }
    }
    for (const AttentionSequence& sequence : batch.sequences) {
      for (int token = 0; token < sequence.q_len; token += shape.tile_tokens) {
        const int position = sequence.kv_len - sequence.q_len + token;
        const int last =
            std::min(token + shape.tile_tokens, sequence.q_len) - token;
        auto& ranges = keys[sequence.q_begin + token];
        std::sort(ranges.begin(), ranges.end());
        int at =
            shape.window > 0 ? std::max(0, position + 1 - shape.window) : 0;
        for (const auto& [begin, end] : ranges) {
          EXPECT_EQ(begin, at);
          at = end;
        }
        EXPECT_EQ(at, position + last);
      }
    }
    for (const int arrival : owned.arrivals) {
      EXPECT_EQ(built.At<int32_t>(built.plan.layout.counters)[3 + arrival], 0);
    }
    const size_t slots = (owned.slots.empty() ? 0 : *owned.slots.rbegin() + 1) +
                         shape.grid * AttentionTileRows(128) / 16;
    EXPECT_LE(slots * AttentionPieceSlotBytes(128),
              AttentionWorkspaceBytes(shape, 1, 1));
    if (HasFailure()) return;
  }
  EXPECT_GT(cut, 1000);
}

// One long sequence is shared by all, also where others are there; where all
// have enough to do nothing is cut.
TEST(AttentionPiecesTest, CutsWhereCtasWouldIdle) {
  const auto pieces_of = [](int count, int length, int others) {
    AttentionPlanShape shape = Shape(8, 4, 32);
    shape.piece_keys = AttentionPieceKeys(shape);
    Batch batch;
    for (int s = 0; s < count; ++s) batch.Add(1, length);
    for (int s = 0; s < others; ++s) batch.Add(1, 500);
    batch.Place();
    return Built(shape, batch).plan.num_tiles - others;
  };
  EXPECT_EQ(pieces_of(1, 8192, 0), 8);
  EXPECT_EQ(pieces_of(1, 8192, 3), 8);
  EXPECT_EQ(pieces_of(1, 131072, 63), 128);
  EXPECT_EQ(pieces_of(64, 4096, 0), 64);
  EXPECT_EQ(pieces_of(1, 1024, 0), 1);
  // Its partial results have no room: 16 a CTA, of eight heads each piece.
  EXPECT_EQ(pieces_of(1, 300000, 0), 1);
}

TEST(AttentionPiecesTest, OnlyOfTilesOverTheCache) {
  AttentionPlanShape shape = Shape(8, 4);
  EXPECT_EQ(AttentionPieceKeys(shape), 0);
  shape.tile_tokens = 32;
  shape.unpack_bytes = 1 << 20;
  EXPECT_EQ(AttentionPieceKeys(shape), 0);
  shape.unpack_bytes = 0;
  shape.head_dim = 192;
  EXPECT_EQ(AttentionPieceKeys(shape), 8 * 112);
  shape.mma_keys = 64;
  EXPECT_EQ(AttentionPieceKeys(shape), 0);
}

}  // namespace
}  // namespace inlay::testing
