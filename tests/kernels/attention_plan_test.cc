// AttentionPlan: every row sees every one of its keys exactly once, in order;
// CTAs have equal shares; nothing exceeds what was laid out; and where a
// sequence's keys are cut does not depend on the batch.
#include "kernels/attention/attention_plan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <tuple>
#include <vector>

namespace inlay {
namespace {

constexpr int kBlockSize = 16;

AttentionPlanShape Shape(int kv_heads, int group, int tile_tokens = 0,
                         int window = 0) {
  AttentionPlanShape shape;
  shape.num_kv_heads = kv_heads;
  shape.group = group;
  shape.head_dim = 128;
  shape.window = window;
  shape.block_size = kBlockSize;
  shape.grid = 132;
  shape.tile_tokens = tile_tokens;
  return shape;
}

struct Batch {
  std::vector<int32_t> blocks;
  std::vector<AttentionSequence> sequences;

  void Add(int q_len, int kv_len) {
    const int32_t begin =
        sequences.empty() ? 0
                          : sequences.back().q_begin + sequences.back().q_len;
    sequences.push_back({begin, q_len, kv_len, nullptr});
  }
  // Once all are there.
  void Place() {
    for (AttentionSequence& sequence : sequences) {
      for (int i = 0; i * kBlockSize < sequence.kv_len; ++i) {
        blocks.push_back(static_cast<int32_t>(blocks.size()) * 7 + 3);
      }
    }
    size_t next = 0;
    for (AttentionSequence& sequence : sequences) {
      sequence.blocks = blocks.data() + next;
      next +=
          static_cast<size_t>((sequence.kv_len + kBlockSize - 1) / kBlockSize);
    }
  }
};

// A plan and its image, with a guard behind it.
struct Built {
  Built(const AttentionPlanShape& shape, const Batch& batch,
        bool graph = false) {
    AttentionPlanLimits limits = AttentionPlanLimitsOf(shape, batch.sequences);
    limits.graph = graph;
    const size_t bytes = LayOutAttentionPlan(shape, limits).bytes;
    storage.resize(bytes / sizeof(AttentionItem) + 2);
    std::memset(storage.data(), 0x5a, storage.size() * sizeof(storage[0]));
    image = reinterpret_cast<std::byte*>(storage.data());
    plan = BuildAttentionPlan(shape, limits, batch.sequences, image);
    EXPECT_LE(plan.used_bytes, bytes);
    for (size_t i = bytes; i < storage.size() * sizeof(storage[0]); ++i) {
      EXPECT_EQ(image[i], std::byte{0x5a}) << "wrote beyond the image";
    }
  }
  template <typename T>
  const T* At(size_t offset) const {
    return reinterpret_cast<const T*>(image + offset);
  }
  const int32_t* cta_items() const {
    return At<int32_t>(plan.layout.cta_items);
  }
  const AttentionItem* items() const {
    return At<AttentionItem>(plan.layout.items);
  }

  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> storage;
  std::byte* image;
  AttentionPlan plan;
};

// Keys of rows of a sequence, by (q_begin, kv_head, row_begin).
using Rows = std::tuple<int, int, int>;

// Who uses which slots and counters.
struct Owners {
  std::map<int, int> slots;
  std::map<int, int> counters;
  int num_counters = 0;
};

// The items of some rows are their chunks in order; slots and counters are
// theirs alone; and the items of each group are counted right.
void CheckFold(const std::vector<AttentionItem>& items,
               const AttentionPlanShape& shape, int64_t slots, Owners& owners) {
  int chunks = 0;
  std::map<int, int> items_of_group;
  const int num_chunks = items[0].num_chunks;
  const int group = num_chunks <= kAttentionFewChunks ? kAttentionFewChunks
                                                      : kAttentionFoldGroup;
  for (const AttentionItem& item : items) {
    EXPECT_EQ(item.num_chunks, num_chunks);
    EXPECT_EQ(item.first_chunk, chunks);
    EXPECT_EQ(item.slot, items[0].slot);
    EXPECT_EQ(item.arrival, items[0].arrival);
    const int count =
        (item.key_end - 1) / item.chunk - item.key_begin / item.chunk + 1;
    for (int g = chunks / group; g <= (chunks + count - 1) / group; ++g) {
      ++items_of_group[g];
    }
    chunks += count;
  }
  EXPECT_EQ(chunks, num_chunks);
  if (items.size() == 1) {
    EXPECT_LT(items[0].slot, 0);
    EXPECT_LE((chunks + group - 1) / group, AttentionCtaSlots(shape));
    return;
  }
  for (const AttentionItem& item : items) {
    const int count =
        (item.key_end - 1) / item.chunk - item.key_begin / item.chunk + 1;
    EXPECT_EQ(item.first_group_items, items_of_group[item.first_chunk / group]);
    EXPECT_EQ(item.last_group_items,
              items_of_group[(item.first_chunk + count - 1) / group]);
  }
  const int groups = (chunks + group - 1) / group;
  EXPECT_GE(items[0].slot, shape.grid * AttentionCtaSlots(shape));
  EXPECT_LE(items[0].slot + chunks + groups, slots);
  for (int i = 0; i < chunks + groups; ++i) {
    EXPECT_EQ(owners.slots[items[0].slot + i]++, 0);
  }
  EXPECT_LE(items[0].arrival + 1 + groups, owners.num_counters);
  for (int i = 0; i < 1 + groups; ++i) {
    EXPECT_EQ(owners.counters[items[0].arrival + i]++, 0);
  }
}

void CheckItems(const AttentionPlanShape& shape, const Batch& batch,
                const Built& built) {
  const int32_t* cta_items = built.cta_items();
  const int count = cta_items[shape.grid];
  std::map<Rows, std::vector<AttentionItem>> by_rows;
  int64_t most = 0;
  int64_t total = 0;
  int64_t longest_chunk = 0;
  ASSERT_EQ(cta_items[0], 0);
  for (int cta = 0; cta < shape.grid; ++cta) {
    ASSERT_LE(cta_items[cta], cta_items[cta + 1]);
    int64_t keys = 0;
    for (int i = cta_items[cta]; i < cta_items[cta + 1]; ++i) {
      const AttentionItem& item = built.items()[i];
      ASSERT_LT(item.key_begin, item.key_end);
      by_rows[{item.q_begin, item.kv_head, item.row_begin}].push_back(item);
      keys += item.key_end - item.key_begin + 48;
      longest_chunk = std::max<int64_t>(
          longest_chunk, shape.batch_invariant ? item.chunk : 64);
    }
    most = std::max(most, keys);
    total += keys;
  }
  EXPECT_LE(most, total / shape.grid + longest_chunk + 4 * 48);
  const int64_t tokens =
      batch.sequences.back().q_begin + batch.sequences.back().q_len;
  const auto slots = static_cast<int64_t>(
      AttentionWorkspaceBytes(
          shape, static_cast<int64_t>(batch.sequences.size()), tokens) /
      (16 * 130 * 4));
  Owners owners;
  owners.num_counters = static_cast<int>((built.plan.layout.cta_items -
                                          built.plan.layout.counters) /
                                         sizeof(int32_t)) -
                        2;
  size_t expected_rows = 0;
  for (const AttentionSequence& sequence : batch.sequences) {
    const int rows = sequence.q_len * shape.group;
    if (shape.tile_tokens > 0 && sequence.q_len > 1 && rows > 64) continue;
    for (int head = 0; head < shape.num_kv_heads; ++head) {
      for (int row = 0; row < rows; row += 16, ++expected_rows) {
        const auto found = by_rows.find({sequence.q_begin, head, row});
        ASSERT_NE(found, by_rows.end());
        const std::vector<AttentionItem>& items = found->second;
        const int start = sequence.kv_len - sequence.q_len;
        const int last = std::min(row + 16, rows) - 1;
        int at = shape.window > 0
                     ? std::max(0, start + row / shape.group + 1 - shape.window)
                     : 0;
        CheckFold(items, shape, slots, owners);
        for (const AttentionItem& item : items) {
          EXPECT_EQ(item.key_begin, at);
          EXPECT_EQ(item.num_rows, last - row + 1);
          EXPECT_EQ(
              built.At<int32_t>(built.plan.layout.blocks)[item.blocks_begin],
              sequence.blocks[0]);
          at = item.key_end;
          if (at < sequence.kv_len && &item != &items.back()) {
            EXPECT_EQ(at % (shape.batch_invariant ? item.chunk : 64), 0);
          }
        }
        EXPECT_EQ(at, shape.causal ? start + last / shape.group + 1
                                   : sequence.kv_len);
      }
    }
  }
  EXPECT_EQ(by_rows.size(), expected_rows);
  EXPECT_GE(count, static_cast<int>(expected_rows));
}

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
}  // namespace inlay
