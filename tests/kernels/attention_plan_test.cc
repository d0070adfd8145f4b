// AttentionPlan: every row sees every one of its keys exactly once, in order,
// shared or not; CTAs have equal shares; nothing exceeds what was laid out; and
// where the keys of a sequence that shares none are cut does not depend on the
// batch.
#include "kernels/attention/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "kernels/attention/attention_unpack.h"

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
  std::vector<std::pair<int, int>> leaders;

  // The first `shared` blocks, as far as both have them, are `leader`'s.
  void Add(int q_len, int kv_len, int leader = -1, int shared = 0) {
    const int32_t begin =
        sequences.empty() ? 0
                          : sequences.back().q_begin + sequences.back().q_len;
    sequences.push_back({begin, q_len, kv_len, nullptr});
    leaders.push_back({leader, shared});
  }
  // Once all are there.
  void Place() {
    std::vector<size_t> begins;
    for (size_t s = 0; s < sequences.size(); ++s) {
      begins.push_back(blocks.size());
      const auto [leader, shared] = leaders[s];
      for (int i = 0; i * kBlockSize < sequences[s].kv_len; ++i) {
        const bool has =
            leader >= 0 && i < shared &&
            i * kBlockSize < sequences[static_cast<size_t>(leader)].kv_len;
        blocks.push_back(has ? blocks[begins[static_cast<size_t>(leader)] +
                                      static_cast<size_t>(i)]
                             : static_cast<int32_t>(blocks.size()) * 7 + 3);
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

// A unit's row in an item of shared keys.
struct SharedPart {
  AttentionItem item;
  AttentionUnit unit;
  int slot;  // of the unit's first chunk
  int row;   // of the unit
  int member;
};
// In the order of keys, by (row of q * query heads a KV head + head, kv_head).
using SharedParts = std::map<std::pair<int, int>, std::vector<SharedPart>>;

// Who uses which rows of slots, and counters.
struct Owners {
  std::map<int, int> slot_rows;
  std::map<int, int> counters;
  int64_t slots = 0;
  int num_counters = 0;
};

int Groups(int chunks) {
  return chunks <= kAttentionFewChunks ? 1 : (chunks + 7) / 8;
}

SharedParts FindShared(const Built& built, int count) {
  SharedParts parts;
  const auto* blocks = built.At<int32_t>(built.plan.layout.blocks);
  for (int i = 0; i < count; ++i) {
    const AttentionItem& item = built.items()[i];
    for (int u = 0; u < item.num_units; ++u) {
      AttentionUnit unit;
      std::memcpy(&unit,
                  blocks + item.units_begin + u * (sizeof(unit) / sizeof(int)),
                  sizeof(unit));
      int member = unit.members_before - 1;
      for (int r = 0; r < kAttentionItemRows; ++r) {
        if (unit.firsts >> r & 1) ++member;
        if (unit.rows[r] < 0) continue;
        parts[{unit.rows[r], item.kv_head}].push_back(
            {item, unit, item.slot + u * item.unit_slots, r, member});
      }
    }
  }
  return parts;
}

// The items of some rows are their chunks in order, from key `at` on; slots and
// counters are theirs alone. `parts`: of the rows' shared keys, of each row.
void CheckFold(const std::vector<AttentionItem>& items,
               const std::vector<std::vector<SharedPart>>& parts,
               const AttentionPlanShape& shape, Owners& owners) {
  const int num_chunks = items[0].num_chunks;
  const int groups = Groups(num_chunks);
  int chunks = static_cast<int>(parts[0].size());
  const int shared = chunks;
  for (const AttentionItem& item : items) {
    EXPECT_EQ(item.num_units, 0);
    EXPECT_EQ(item.num_chunks, num_chunks);
    EXPECT_EQ(item.first_chunk, chunks);
    EXPECT_EQ(item.slot, items[0].slot);
    EXPECT_EQ(item.slot_row, items[0].slot_row);
    EXPECT_EQ(item.arrival, items[0].arrival);
    chunks += (item.key_end - 1) / item.chunk - item.key_begin / item.chunk + 1;
  }
  EXPECT_EQ(chunks, num_chunks);
  for (size_t r = 0; r < parts.size(); ++r) {
    ASSERT_EQ(parts[r].size(), static_cast<size_t>(shared));
    for (int c = 0; c < shared; ++c) {
      const SharedPart& part = parts[r][static_cast<size_t>(c)];
      EXPECT_EQ(part.item.first_chunk, c);
      EXPECT_EQ(part.item.num_chunks, shared);
      EXPECT_EQ(part.slot, items[0].slot);
      EXPECT_EQ(part.row, items[0].slot_row + static_cast<int>(r));
      EXPECT_EQ(part.unit.own_chunks[part.row], num_chunks - shared);
      EXPECT_EQ(part.item.arrival + part.member * part.item.member_counters,
                items[0].arrival);
      EXPECT_LE(num_chunks + groups, part.item.unit_slots);
      EXPECT_LE(1 + groups, part.item.member_counters);
    }
  }
  if (items.size() == 1 && shared == 0) {
    EXPECT_LT(items[0].slot, 0);
    EXPECT_LE(groups == 1 ? 0 : groups, AttentionCtaSlots(shape));
    return;
  }
  EXPECT_GE(items[0].slot, shape.grid * AttentionCtaSlots(shape));
  EXPECT_LE(items[0].slot + chunks + groups, owners.slots);
  for (int i = 0; i < chunks + groups; ++i) {
    for (int r = 0; r < items[0].num_rows; ++r) {
      EXPECT_EQ(owners.slot_rows[(items[0].slot + i) * shape.item_rows +
                                 items[0].slot_row + r]++,
                0);
    }
  }
  EXPECT_LE(items[0].arrival + 1 + groups, owners.num_counters);
  for (int i = 0; i < 1 + groups; ++i) {
    EXPECT_EQ(owners.counters[items[0].arrival + i]++, 0);
  }
}

// CTAs have equal shares, but for what one chunk is.
void CheckShares(const AttentionPlanShape& shape, const Built& built) {
  const int32_t* cta_items = built.cta_items();
  int64_t most = 0;
  int64_t total = 0;
  int64_t longest_chunk = 0;
  bool shares = false;
  ASSERT_EQ(cta_items[0], 0);
  for (int cta = 0; cta < shape.grid; ++cta) {
    ASSERT_LE(cta_items[cta], cta_items[cta + 1]);
    int64_t keys = 0;
    bool shared_here = false;
    for (int i = cta_items[cta]; i < cta_items[cta + 1]; ++i) {
      const AttentionItem& item = built.items()[i];
      shared_here = shared_here || item.num_units > 0;
      ASSERT_LT(item.key_begin, item.key_end);
      // As the dealer counts: attention_cut.h, attention_prefix.h.
      const int length = item.key_end - item.key_begin;
      keys += item.num_units > 0  ? length * 3 / 2 + 224
              : item.slot_row > 0 ? length + 240
                                  : length + 48;
      // A window may begin anywhere in its first chunk, which is dealt out by
      // the middle of all of it.
      const bool cut = !shape.cuts_anywhere() && !shape.whole_rows;
      const int part = shape.window > 0 && cut ? item.chunk : length;
      longest_chunk = std::max<int64_t>(
          longest_chunk,
          std::min(part, shape.cuts_anywhere() ? 64 : item.chunk));
    }
    shares = shares || shared_here;
    most = std::max(most, keys);
    total += keys;
  }
  const int64_t share =
      std::max<int64_t>(total / shape.grid, shape.wide_items() ? 256 : 0);
  EXPECT_LE(most, share + longest_chunk + 2 * 48 + 32 + (shares ? 3 * 240 : 0));
}

// Entries of the sequence's block table that its rows see keys of, where there
// is no mask: the first, and behind the last.
std::pair<int, int> SeenBlocks(const AttentionPlanShape& shape,
                               const AttentionSequence& sequence) {
  const int first = sequence.kv_len - sequence.q_len + 1 - shape.window;
  return {shape.window > 0 ? std::max(0, first) / kBlockSize : 0,
          (sequence.kv_len + kBlockSize - 1) / kBlockSize};
}

bool IsTiles(const AttentionPlanShape& shape,
             const AttentionSequence& sequence) {
  if (shape.tile_tokens == 0 || sequence.q_len <= 1) return false;
  if (sequence.q_len * shape.group <= 64) return false;
  if (shape.unpack_bytes == 0) return true;
  const int row_tiles = (sequence.q_len * shape.group + 15) / 16;
  if (sequence.q_len <= shape.tile_tokens &&
      row_tiles * shape.num_kv_heads <= 66) {
    return false;
  }
  const auto [first, end] = SeenBlocks(shape, sequence);
  return int64_t{end - first} * 4 * shape.head_dim * kBlockSize <=
         shape.unpack_bytes;
}

// Returns how many rows share keys.
int CheckItems(const AttentionPlanShape& shape, const Batch& batch,
               const Built& built) {
  CheckShares(shape, built);
  const int count = built.cta_items()[shape.grid];
  std::map<Rows, std::vector<AttentionItem>> by_rows;
  for (int i = 0; i < count; ++i) {
    const AttentionItem& item = built.items()[i];
    if (item.num_units > 0) continue;
    by_rows[{item.q_begin, item.kv_head, item.row_begin}].push_back(item);
  }
  const SharedParts shared = FindShared(built, count);
  size_t shared_rows = 0;
  const int64_t tokens =
      batch.sequences.back().q_begin + batch.sequences.back().q_len;
  Owners owners;
  AttentionPlanShape not_unpacked = shape;
  not_unpacked.unpack_bytes = 0;
  owners.slots = static_cast<int64_t>(
      AttentionWorkspaceBytes(
          not_unpacked, static_cast<int64_t>(batch.sequences.size()), tokens) /
      static_cast<size_t>(shape.item_rows * 130 * 4));
  owners.num_counters = static_cast<int>((built.plan.layout.cta_items -
                                          built.plan.layout.counters) /
                                         sizeof(int32_t)) -
                        2;
  const auto* blocks = built.At<int32_t>(built.plan.layout.blocks);
  size_t expected_rows = 0;
  for (const AttentionSequence& sequence : batch.sequences) {
    const int rows = sequence.q_len * shape.group;
    if (IsTiles(shape, sequence)) continue;
    for (int head = 0; head < shape.num_kv_heads; ++head) {
      for (int row = 0; row < rows; row += shape.item_rows, ++expected_rows) {
        const auto found = by_rows.find({sequence.q_begin, head, row});
        if (found == by_rows.end()) {
          ADD_FAILURE() << "rows without items";
          return 0;
        }
        const std::vector<AttentionItem>& items = found->second;
        const int start = sequence.kv_len - sequence.q_len;
        const int last = std::min(row + shape.item_rows, rows) - 1;
        int at = shape.window > 0
                     ? std::max(0, start + row / shape.group + 1 - shape.window)
                     : 0;
        std::vector<std::vector<SharedPart>> parts;
        for (int r = row; r <= last; ++r) {
          const auto part =
              shared.find({sequence.q_begin * shape.group + r, head});
          parts.emplace_back();
          if (part == shared.end()) continue;
          parts.back() = part->second;
          ++shared_rows;
        }
        for (const SharedPart& part : parts[0]) {
          EXPECT_EQ(part.item.key_begin, at);
          EXPECT_EQ(part.item.key_end % 64, 0);
          at = part.item.key_end;
          EXPECT_LE(at, start);
          for (int b = 0; b * kBlockSize < at; ++b) {
            EXPECT_EQ(blocks[part.item.blocks_begin + b], sequence.blocks[b]);
          }
        }
        CheckFold(items, parts, shape, owners);
        for (const AttentionItem& item : items) {
          EXPECT_EQ(item.key_begin, at);
          EXPECT_EQ(item.num_rows, last - row + 1);
          if (shape.selects == 0) {
            EXPECT_EQ(blocks[item.blocks_begin], sequence.blocks[0]);
          }
          at = item.key_end;
          if (at < sequence.kv_len && &item != &items.back()) {
            EXPECT_EQ(at % (shape.cuts_anywhere() ? 64 : item.chunk), 0);
          }
        }
        EXPECT_EQ(at, shape.causal ? start + last / shape.group + 1
                                   : sequence.kv_len);
      }
    }
  }
  EXPECT_EQ(by_rows.size(), expected_rows);
  EXPECT_EQ(shared.size(), shared_rows);
  return static_cast<int>(shared_rows);
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

AttentionPlanShape Sharing(int kv_heads, int group, int tile_tokens = 0) {
  AttentionPlanShape shape = Shape(kv_heads, group, tile_tokens);
  shape.prefix_units = 4;
  return shape;
}

TEST(AttentionPlanTest, SharedKeysAreReadOnce) {
  std::mt19937 rng(3);
  int sharing = 0;
  for (int round = 0; round < 300; ++round) {
    const int group = 1 + static_cast<int>(rng() % 20);
    AttentionPlanShape shape =
        Sharing(1 << rng() % 4, group, rng() % 2 == 0 ? 0 : 128 / group);
    shape.causal = rng() % 4 != 0;
    Batch batch;
    const int sequences = 2 + static_cast<int>(rng() % 150);
    const int range = rng() % 3 == 0 ? 5000 : 400;
    for (int s = 0; s < sequences; ++s) {
      const int q_len = rng() % 8 == 0 ? static_cast<int>(rng() % 40) : 1;
      const int own = q_len + static_cast<int>(rng() % range);
      // Chains of prefixes: some share more with each other than with others.
      const bool shares = s > 0 && rng() % 8 != 0;
      const int leader = shares ? static_cast<int>(rng() % s) / 5 * 5 : -1;
      const int common = 1 + static_cast<int>(rng() % 300);
      batch.Add(q_len, (shares ? common * kBlockSize : 3000) + own, leader,
                common);
    }
    batch.Place();
    SCOPED_TRACE(::testing::Message() << "round " << round);
    sharing += CheckItems(shape, batch, Built(shape, batch)) > 0 ? 1 : 0;
    if (HasFailure()) return;
  }
  EXPECT_GT(sharing, 200);
}

TEST(AttentionPlanTest, GroupsOfEverySizeAndRest) {
  for (const int count : {2, 3, 4, 5, 16, 17, 63, 64, 256}) {
    for (const int own : {1, 17, 300, 2500}) {
      for (const int group : {1, 4, 5, 16, 71}) {
        if (count * group > 64 * 16) continue;
        const AttentionPlanShape shape = Sharing(8, group);
        Batch batch;
        batch.Add(1, 16000 + own);
        for (int s = 1; s < count; ++s) batch.Add(1, 16000 + own, 0, 1000);
        batch.Add(1, 900);  // on its own
        batch.Place();
        const Built built(shape, batch);
        SCOPED_TRACE(::testing::Message()
                     << count << " + " << own << " group " << group);
        EXPECT_EQ(CheckItems(shape, batch, built), 8 * group * count);
        if (HasFailure()) return;
        int64_t read = 0;
        for (int i = 0; i < built.cta_items()[shape.grid]; ++i) {
          const AttentionItem& item = built.items()[i];
          if (item.num_units > 0) read += item.key_end - item.key_begin;
        }
        // 16000 is a multiple of 64, and of the least that items share.
        const int rows = group >= 16 ? 16 : 16 / group * group;
        const int tiles = (group + 15) / 16;
        const int units =
            group >= 16 ? count * tiles : (count * group + rows - 1) / rows;
        EXPECT_EQ(read, 8 * 16000 * ((units + 3) / 4));
      }
    }
  }
}

TEST(AttentionPlanTest, SharesOnlyWhereItPaysAndIsRight) {
  Batch batch;
  batch.Add(1, 9000);
  for (int s = 1; s < 16; ++s) batch.Add(1, 9000, 0, 500);
  batch.Place();
  AttentionPlanShape shape = Sharing(8, 4);
  EXPECT_GT(CheckItems(shape, batch, Built(shape, batch)), 0);
  for (int what = 0; what < 4; ++what) {
    AttentionPlanShape other = shape;
    if (what == 0) other.window = 20000;
    if (what == 1) other.whole_rows = true;
    if (what == 2) other.batch_invariant = false;
    if (what == 3) other.prefix_units = 0;
    EXPECT_EQ(FindShared(Built(other, batch),
                         Built(other, batch).cta_items()[other.grid])
                  .size(),
              0u)
        << what;
  }
  Batch little;
  little.Add(1, 300);
  for (int s = 1; s < 8; ++s) little.Add(1, 300, 0, 10);
  little.Place();
  EXPECT_EQ(CheckItems(shape, little, Built(shape, little)), 0);
}

// Where no block is shared, the plan is the one without sharing.
TEST(AttentionPlanTest, NothingChangesForWhoSharesNothing) {
  AttentionPlanShape shape = Sharing(8, 4, 32);
  std::mt19937 rng(5);
  Batch batch;
  for (int s = 0; s < 100; ++s) {
    batch.Add(s % 9 == 0 ? 3 : 1, 3 + static_cast<int>(rng() % 3000));
  }
  batch.Place();
  const Built shared(shape, batch);
  shape.prefix_units = 0;
  const Built plain(shape, batch);
  const int count = plain.cta_items()[shape.grid];
  ASSERT_EQ(shared.cta_items()[shape.grid], count);
  for (int i = 0; i < count; ++i) {
    EXPECT_EQ(std::memcmp(&shared.items()[i], &plain.items()[i],
                          sizeof(AttentionItem)),
              0);
  }
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

// Whatever the row does with all keys of a sequence.
TEST(AttentionPlanTest, WhatIsSelectedBecomesItemsInEveryRow) {
  for (const char* name : {"cuda_sm90", "cuda_plain"}) {
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
}  // namespace inlay
