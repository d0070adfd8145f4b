// Plans of attention for tests: batches, plans with their images, and what
// holds of every plan: every row sees every one of its keys exactly once, in
// order, shared or not; CTAs have equal shares; nothing exceeds what was laid
// out. Header only.
#ifndef INLAY_TESTS_SUPPORT_ATTENTION_PLAN_UTIL_H_
#define INLAY_TESTS_SUPPORT_ATTENTION_PLAN_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/attention/attention_cut.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/attention/attention_wide_lists.h"

namespace inlay::testing {

inline constexpr int kBlockSize = 16;

inline AttentionPlanShape Shape(int kv_heads, int group, int tile_tokens = 0,
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

inline int Groups(int chunks) {
  return chunks <= kAttentionFewChunks ? 1 : (chunks + 7) / 8;
}

inline SharedParts FindShared(const Built& built, int count) {
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
inline void CheckFold(const std::vector<AttentionItem>& items,
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
inline void CheckShares(const AttentionPlanShape& shape, const Built& built) {
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
      const bool cut = !CutsAnywhere(shape) && !shape.whole_rows;
      const int part = shape.window > 0 && cut ? item.chunk : length;
      longest_chunk = std::max<int64_t>(
          longest_chunk,
          std::min(part, CutsAnywhere(shape) ? 64 : item.chunk));
    }
    shares = shares || shared_here;
    most = std::max(most, keys);
    total += keys;
  }
  const int64_t share = total / shape.grid;
  if (shape.wide_items()) {
    // Each CTA has room for two pieces as small as they come.
    EXPECT_LE(most, share + 2 * (kLeastWidePiece + kWideCutOverhead + 48));
    return;
  }
  EXPECT_LE(most, share + longest_chunk + 2 * 48 + 32 + (shares ? 3 * 240 : 0));
}

// Entries of the sequence's block table that its rows see keys of, where there
// is no mask: the first, and behind the last.
inline std::pair<int, int> SeenBlocks(const AttentionPlanShape& shape,
                                      const AttentionSequence& sequence) {
  const int first = sequence.kv_len - sequence.q_len + 1 - shape.window;
  return {shape.window > 0 ? std::max(0, first) / kBlockSize : 0,
          (sequence.kv_len + kBlockSize - 1) / kBlockSize};
}

inline bool IsTiles(const AttentionPlanShape& shape,
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
inline int CheckItems(const AttentionPlanShape& shape, const Batch& batch,
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
            EXPECT_EQ(at % (CutsAnywhere(shape) ? 64 : item.chunk), 0);
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

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_ATTENTION_PLAN_UTIL_H_
