// AttentionPlan: items cover all keys in equal shares, and where the keys of a
// sequence that shares none are cut does not depend on the batch.
#include "kernels/attention/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/support/attention_plan_util.h"

namespace inlay::testing {
namespace {

TEST(AttentionPlanTest, ItemsCoverEveryKeyOnceInEqualShares) {
  std::mt19937 rng(1);
  for (int round = 0; round < 200; ++round) {
    const int group = 1 + static_cast<int>(rng() % 9);
    AttentionPlanShape shape =
        Shape(1 << rng() % 4, group, rng() % 2 == 0 ? 0 : 128 / group,
              rng() % 3 == 0 ? 1 + static_cast<int>(rng() % 3000) : 0);
    shape.batch_invariant = rng() % 3 != 0;
    shape.causal = shape.window > 0 || rng() % 4 != 0;
    Batch batch;
    const int sequences = 1 + static_cast<int>(rng() % 60);
    for (int s = 0; s < sequences; ++s) {
      const int q_len = rng() % 4 == 0 ? static_cast<int>(rng() % 40) : 1;
      const int range = rng() % 4 == 0 ? 60000 : 900;
      batch.Add(q_len, q_len + static_cast<int>(rng() % range));
    }
    batch.Place();
    SCOPED_TRACE(::testing::Message() << "round " << round);
    CheckItems(shape, batch, Built(shape, batch));
    if (HasFailure()) return;
  }
}

// Items of 64 and 128 rows, cut where a CTA's share ends; whole where a query's
// bits must not depend on the batch.
TEST(AttentionPlanTest, WideItemsCoverEveryKeyOnce) {
  std::mt19937 rng(11);
  for (int round = 0; round < 100; ++round) {
    constexpr int kGroups[] = {1, 5, 16, 64, 100, 128};
    AttentionPlanShape shape = Shape(1, kGroups[rng() % 6]);
    shape.item_rows = rng() % 2 == 0 ? 64 : 128;
    shape.grid = shape.item_rows == 64 ? 132 : 66;
    shape.whole_rows = rng() % 4 == 0;
    shape.window = rng() % 4 == 0 ? 300 : 0;
    Batch batch;
    const int sequences = 1 + static_cast<int>(rng() % 40);
    for (int s = 0; s < sequences; ++s) {
      const int q_len = rng() % 4 == 0 ? static_cast<int>(rng() % 40) : 1;
      const int range = rng() % 4 == 0 ? 60000 : 900;
      batch.Add(q_len, q_len + static_cast<int>(rng() % range));
    }
    batch.Place();
    SCOPED_TRACE(::testing::Message() << "round " << round);
    const Built built(shape, batch);
    if (!shape.whole_rows) {
      CheckItems(shape, batch, built);
    } else {
      for (int i = 0; i < built.cta_items()[shape.grid]; ++i) {
        EXPECT_EQ(built.items()[i].num_chunks, 1);
      }
    }
    if (HasFailure()) return;
  }
}

// Keys that the CTA with the most has, and how many pieces there are, of
// `count` sequences of `length`.
std::pair<int, int> MostKeysAndPieces(int count, int length, int grid) {
  AttentionPlanShape shape = Shape(1, 128);
  shape.item_rows = 128;
  shape.grid = grid;
  Batch batch;
  for (int s = 0; s < count; ++s) batch.Add(1, length);
  batch.Place();
  const Built built(shape, batch);
  CheckItems(shape, batch, built);
  int most = 0;
  for (int cta = 0; cta < grid; ++cta) {
    int keys = 0;
    for (int i = built.cta_items()[cta]; i < built.cta_items()[cta + 1]; ++i) {
      keys += built.items()[i].key_end - built.items()[i].key_begin;
    }
    most = std::max(most, keys);
  }
  return {most, built.cta_items()[grid]};
}

// Partial results cost more than CTAs that idle a little.
TEST(AttentionPlanTest, WideItemsAreCutWhereThatIsFaster) {
  EXPECT_EQ(MostKeysAndPieces(64, 4096, 66), std::pair(4096, 64));
  EXPECT_EQ(MostKeysAndPieces(128, 4096, 66), std::pair(8192, 128));
  EXPECT_EQ(MostKeysAndPieces(66, 4096, 66), std::pair(4096, 66));
  EXPECT_EQ(MostKeysAndPieces(33, 4096, 66), std::pair(2048, 66));
  EXPECT_EQ(MostKeysAndPieces(16, 8192, 66), std::pair(2048, 64));
  // Pieces are no smaller.
  EXPECT_EQ(MostKeysAndPieces(1, 8192, 66), std::pair(256, 32));
  EXPECT_EQ(MostKeysAndPieces(1, 500, 66), std::pair(500, 1));
  // An even share is 6206 keys, and 1985.
  EXPECT_LE(MostKeysAndPieces(100, 4096, 66).first, 6206 + 320);
  EXPECT_LE(MostKeysAndPieces(1, 131072, 66).first, 1985 + 64);
}

// Rows that are never cut lie on many CTAs all the same.
TEST(AttentionPlanTest, WholeRowsAreShared) {
  AttentionPlanShape shape = Shape(8, 4);
  shape.whole_rows = true;
  Batch batch;
  for (int s = 0; s < 64; ++s) batch.Add(1, 1000);
  batch.Place();
  const Built built(shape, batch);
  for (int cta = 0; cta < shape.grid; ++cta) {
    EXPECT_LE(built.cta_items()[cta + 1] - built.cta_items()[cta], 5);
  }
}

TEST(AttentionPlanTest, FlashDecodingsTableIsBalanced) {
  for (int count = 256; count >= 1; count /= 2) {
    Batch batch;
    for (int s = 0; s < count; ++s) batch.Add(1, 65536 / count);
    batch.Place();
    for (const bool invariant : {true, false}) {
      AttentionPlanShape shape = Shape(2, 8);
      shape.batch_invariant = invariant;
      const Built built(shape, batch);
      CheckItems(shape, batch, built);
      int most = 0;
      for (int cta = 0; cta < shape.grid; ++cta) {
        int keys = 0;
        for (int i = built.cta_items()[cta]; i < built.cta_items()[cta + 1];
             ++i) {
          keys += built.items()[i].key_end - built.items()[i].key_begin;
        }
        most = std::max(most, keys);
      }
      EXPECT_LT(most, 1.13 * 2 * 65536 / shape.grid) << "batch " << count;
    }
  }
}

TEST(AttentionPlanTest, CutsDoNotDependOnTheBatch) {
  const AttentionPlanShape shape = Shape(2, 8);
  std::mt19937 rng(2);
  Batch batch;
  for (int s = 0; s < 50; ++s) batch.Add(1, 1 + static_cast<int>(rng() % 9000));
  batch.Place();
  const Built whole(shape, batch);
  for (const AttentionSequence& sequence : batch.sequences) {
    Batch alone;
    alone.Add(1, sequence.kv_len);
    alone.Place();
    const Built built(shape, alone);
    for (int i = 0; i < whole.cta_items()[shape.grid]; ++i) {
      const AttentionItem& item = whole.items()[i];
      if (item.q_begin != sequence.q_begin) continue;
      EXPECT_EQ(item.chunk, built.items()[0].chunk);
    }
  }
}

// Selected keys: every query is a sequence of as many keys as it has or as are
// selected, and has no blocks.
TEST(AttentionPlanTest, QueriesOfSelectedKeys) {
  constexpr int kSelects = 700;
  Batch batch;
  batch.Add(3, 500);
  batch.Add(0, 40);
  batch.Add(5, 702);
  batch.Add(1, 90000);
  batch.Place();
  std::vector<AttentionSequence> queries(9);
  ASSERT_EQ(SplitIntoQueries(batch.sequences, kSelects, queries.data()), 9);
  const int keys[] = {498, 499, 500, 698, 699, 700, 700, 700, 700};
  Batch split;
  for (int i = 0; i < 9; ++i) {
    const AttentionSequence& query = queries[static_cast<size_t>(i)];
    EXPECT_EQ(query.q_begin, i);
    EXPECT_EQ(query.q_len, 1);
    EXPECT_EQ(query.kv_len, keys[i]);
  }
  split.sequences = queries;
  AttentionPlanShape shape = Shape(1, 40);
  shape.selects = kSelects;
  EXPECT_EQ(AttentionPlanLimitsOf(shape, queries).blocks, 0);
  for (const bool graph : {false, true}) {
    const Built built(shape, split, graph);
    CheckItems(shape, split, built);
    EXPECT_EQ(built.plan.num_tiles, 0);
    EXPECT_LE(built.plan.used_bytes, built.plan.layout.bytes);
  }
}

// Over bytes a step with enough to do has chunks of a CTA's share, up to a
// most; a sequence that is alone has those of a model whose batches must not
// matter.
TEST(AttentionPlanTest, ChunksOverBytesAreShares) {
  const AttentionRow row = {"cuda_sm90", DeviceKind::kCuda, 90,
                            nullptr,     nullptr,           nullptr};
  AttentionDesc desc;
  desc.num_heads = 32;
  desc.num_kv_heads = 8;
  desc.head_dim = 128;
  desc.activation = DType::kBF16;
  desc.kv = DType::kI8;
  const auto chunk_of = [&](int batch, int kv_len, bool batch_invariant) {
    AttentionPlanShape shape = MakeAttentionPlanShape(row, desc, 16, 132);
    EXPECT_TRUE(ChunksAreShares(shape));
    shape.batch_invariant = batch_invariant;
    EXPECT_FALSE(CutsAnywhere(shape));
    const AttentionSequence sequence = {0, 1, kv_len, nullptr};
    const int64_t total = batch * CostAlone(shape, nullptr, sequence);
    return Chunker(shape, nullptr, total).ChunkOf(sequence);
  };
  for (const int kv_len : {100, 600, 1024, 4096, 8192, 9000, 13000, 131072}) {
    const int64_t fixed = chunk_of(1, kv_len, true);
    EXPECT_EQ(chunk_of(1, kv_len, false), fixed) << kv_len;
    EXPECT_EQ(chunk_of(64, kv_len, true), fixed) << kv_len;
    EXPECT_GE(chunk_of(64, kv_len, false), fixed) << kv_len;
  }
  EXPECT_EQ(chunk_of(64, 1024, false), kMostShareChunk);
  EXPECT_EQ(chunk_of(16, 2048, false), 2048);
  EXPECT_EQ(chunk_of(4, 1024, false), 256);
  EXPECT_EQ(chunk_of(2, 8192, false), 1024);
}

// Tiles of cuda_mma: as many rows, and keys at a time, as its kernel has; none
// where it could not read the cache's blocks, or one token has more rows.
TEST(AttentionPlanTest, TilesByMma) {
  const AttentionRow row = {"cuda_mma", DeviceKind::kCuda, 80,
                            nullptr,    nullptr,           nullptr};
  AttentionDesc desc;
  desc.num_heads = 32;
  desc.num_kv_heads = 8;
  desc.head_dim = 128;
  desc.activation = desc.kv = DType::kBF16;
  AttentionPlanShape shape = MakeAttentionPlanShape(row, desc, 48, 108);
  EXPECT_EQ(shape.tile_tokens, 32);
  EXPECT_EQ(shape.tile_keys(), 64);
  EXPECT_EQ(shape.grid, 108);
  EXPECT_EQ(shape.prefix_units, 0);
  EXPECT_EQ(shape.unpack_bytes, 0);
  // cuda_plain's items, two CTAs a multiprocessor.
  EXPECT_EQ(MakeAttentionPlanShape(row, desc, 24, 108).tile_tokens, 0);
  EXPECT_EQ(MakeAttentionPlanShape(row, desc, 24, 108).grid, 216);
  desc.head_dim = 256;
  EXPECT_EQ(MakeAttentionPlanShape(row, desc, 16, 108).tile_keys(), 32);
  desc.num_kv_heads = 1;
  desc.num_heads = 129;
  EXPECT_EQ(MakeAttentionPlanShape(row, desc, 16, 108).tile_tokens, 0);
}

// Whatever the row does with all keys of a sequence.
TEST(AttentionPlanTest, WhatIsSelectedBecomesItemsInEveryRow) {
  for (const char* name : {"cuda_sm90", "cuda_mma", "cuda_plain"}) {
    const AttentionRow row = {name,    DeviceKind::kCuda, 80,
                              nullptr, nullptr,           nullptr};
    for (const DType kv : {DType::kBF16, DType::kI8}) {
      AttentionDesc desc;
      desc.num_heads = 32;
      desc.num_kv_heads = 8;
      desc.head_dim = 128;
      desc.activation = DType::kBF16;
      desc.kv = kv;
      const AttentionPlanShape dense =
          MakeAttentionPlanShape(row, desc, 16, 132);
      desc.selects = 2048;
      desc.mix.block = 16;
      const AttentionPlanShape shape =
          MakeAttentionPlanShape(row, desc, 16, 132);
      EXPECT_EQ(shape.grid, dense.grid);
      EXPECT_EQ(shape.selects, 2048);
      EXPECT_EQ(shape.mix.block, 16);
      EXPECT_EQ(shape.tile_tokens, 0);
      EXPECT_EQ(shape.prefix_units, 0);
      EXPECT_EQ(shape.unpack_bytes, 0);
    }
  }
}

TEST(AttentionPlanTest, GraphsAlwaysLaunchItemsAndNothingElse) {
  const AttentionPlanShape shape = Shape(1, 71, 1);
  Batch batch;
  batch.Add(1, 500);
  batch.Add(0, 0);
  batch.Place();
  const Built built(shape, batch, true);
  EXPECT_TRUE(built.plan.run_items);
  EXPECT_EQ(built.plan.num_tiles, 0);
  CheckItems(shape, batch, built);
  batch.sequences[0] = {0, 0, 0, nullptr};
  const Built empty(shape, batch, true);
  EXPECT_TRUE(empty.plan.run_items);
  EXPECT_EQ(empty.cta_items()[shape.grid], 0);
  EXPECT_FALSE(Built(shape, batch).plan.run_items);
}

}  // namespace
}  // namespace inlay::testing
