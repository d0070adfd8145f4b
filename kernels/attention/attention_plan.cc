#include "kernels/attention/attention_plan.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "memory/status.h"

namespace inlay {
namespace {

// Tiles of keys begin at multiples of this, in all kernels that run items.
constexpr int64_t kKeyTile = 64;
constexpr int64_t kLeastChunk = 256;
// Of more rows than CTAs, at most so many chunks each.
constexpr int64_t kFewChunks = 8;
// What an item costs beside its keys, in keys: its queries, its epilogue.
constexpr int64_t kItemOverhead = 48;
// Everything is one chunk.
constexpr int32_t kNoChunks = 1 << 30;

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// The keys that the tokens [first, last] of `sequence` see.
KeyRange KeysOf(const AttentionPlanShape& shape,
                const AttentionSequence& sequence, int64_t first,
                int64_t last) {
  const int64_t start = int64_t{sequence.kv_len} - sequence.q_len;
  KeyRange range;
  range.end = shape.causal ? start + last + 1 : sequence.kv_len;
  if (shape.window > 0) {
    range.begin = std::max<int64_t>(0, start + first + 1 - shape.window);
  }
  return range;
}

int64_t RowTiles(const AttentionPlanShape& shape, int64_t q_len) {
  return CeilDiv(q_len * shape.group, kAttentionItemRows);
}

bool BecomesItems(const AttentionPlanShape& shape, int64_t q_len) {
  return shape.tile_tokens == 0 || q_len <= 1 ||
         q_len * shape.group <= kAttentionSplitRows;
}

// Into how many chunks rows are cut, `pairs` of them in the sequence, so that
// the sequence alone keeps all CTAs equally busy. More chunks than CTAs only
// where that saves a twentieth.
int64_t ChunksFor(const AttentionPlanShape& shape, int64_t pairs) {
  int64_t best = 1;
  int64_t best_share = CeilDiv(pairs, shape.grid);
  for (int64_t count = 2; count <= std::max(shape.grid / pairs, kFewChunks);
       ++count) {
    const int64_t share = CeilDiv(pairs * count, shape.grid);
    if (20 * share * best < 19 * best_share * count) {
      best = count;
      best_share = share;
    }
  }
  return best;
}

int64_t MaxChunks(const AttentionPlanShape& shape) {
  // A window may begin anywhere in its first chunk.
  return std::max<int64_t>(shape.grid / shape.num_kv_heads, kFewChunks) + 2;
}

int64_t MaxPairs(const AttentionPlanShape& shape, int64_t sequences,
                 int64_t tokens) {
  return shape.num_kv_heads *
         (tokens * shape.group / kAttentionItemRows + sequences);
}

// What `pairs` rows may need at most. Only those that lie across a border
// between two CTAs have any; where keys are cut anywhere, an item is a chunk.
struct Kept {
  int64_t slots = 0;
  int64_t counters = 0;
};
Kept MostKept(const AttentionPlanShape& shape, int64_t pairs) {
  const int64_t split = std::min<int64_t>(shape.grid, pairs);
  const int64_t chunks = std::max(split * MaxChunks(shape), split + shape.grid);
  Kept kept;
  kept.counters = 2 * split + chunks / kAttentionFoldGroup;
  kept.slots = chunks + kept.counters;
  return kept;
}

// Cuts rows x keys into items and deals them out to the CTAs, in order, each
// chunk to the CTA in whose share of the whole its middle lies.
class Dealer {
 public:
  Dealer(const AttentionPlanShape& shape, int64_t total, AttentionItem* items,
         int32_t* cta_items)
      : shape_(shape),
        total_(total),
        items_(items),
        cta_items_(cta_items),
        num_slots_(shape.grid * AttentionCtaSlots(shape)) {
    cta_items_[0] = 0;
  }

  // `item` is complete but for what depends on the cut. `keys` is not empty.
  void Add(AttentionItem item, KeyRange keys, int64_t chunk) {
    const int64_t cut = shape_.batch_invariant ? chunk : kKeyTile;
    item.chunk =
        shape_.batch_invariant ? static_cast<int32_t>(chunk) : kNoChunks;
    const int32_t begin = num_items_;
    const int64_t first = keys.begin / cut;
    const int64_t last = CeilDiv(keys.end, cut);
    int64_t at = first;
    while (at < last) {
      const int64_t end = std::clamp(CutBefore(first, cut), at, last);
      if (end > at) {
        item.key_begin = static_cast<int32_t>(std::max(keys.begin, at * cut));
        item.key_end = static_cast<int32_t>(std::min(keys.end, end * cut));
        item.first_chunk = static_cast<int32_t>(at - first);
        items_[num_items_++] = item;
      }
      at = end;
      if (at < last) cta_items_[++cta_] = num_items_;
    }
    cost_ += keys.end - keys.begin + kItemOverhead;
    Join(begin);
  }

  void Finish() {
    while (cta_ < shape_.grid) cta_items_[++cta_] = num_items_;
  }

 private:
  // The first cut of the current rows that the current CTA does not take.
  int64_t CutBefore(int64_t first, int64_t cut) const {
    if (cta_ + 1 == shape_.grid) return std::numeric_limits<int64_t>::max();
    const int64_t limit = total_ * (cta_ + 1) / shape_.grid;
    return first + std::max<int64_t>(
                       0, (limit - cost_ - kItemOverhead + cut / 2) / cut);
  }

  // Items [begin, num_items_) are all of the same rows.
  void Join(int32_t begin) {
    const bool invariant = shape_.batch_invariant;
    const AttentionItem& last = items_[num_items_ - 1];
    const int32_t chunks =
        invariant ? last.first_chunk + ChunksOf(last) : num_items_ - begin;
    const int32_t group = chunks <= kAttentionFewChunks ? kAttentionFewChunks
                                                        : kAttentionFoldGroup;
    for (int32_t i = begin; i < num_items_; ++i) {
      AttentionItem& item = items_[i];
      if (!invariant) item.first_chunk = i - begin;
      item.num_chunks = chunks;
      item.slot = num_items_ - begin == 1 ? -1 : num_slots_;
      item.arrival = num_arrivals_;
    }
    if (num_items_ - begin == 1) return;
    for (int32_t i = begin; i < num_items_; ++i) {
      const auto [first, last] = GroupsOf(items_[i], group);
      items_[i].first_group_items = ItemsOf(first, i, begin, group);
      items_[i].last_group_items = ItemsOf(last, i, begin, group);
    }
    const auto groups = static_cast<int32_t>(CeilDiv(chunks, group));
    num_slots_ += chunks + groups;
    num_arrivals_ += 1 + groups;
  }

  static int32_t ChunksOf(const AttentionItem& item) {
    return (item.key_end - 1) / item.chunk - item.key_begin / item.chunk + 1;
  }

  // The first and the last group that the item has chunks of.
  static std::pair<int32_t, int32_t> GroupsOf(const AttentionItem& item,
                                              int32_t group) {
    return {item.first_chunk / group,
            (item.first_chunk + ChunksOf(item) - 1) / group};
  }

  // How many items, of which `at` is one, have chunks of group `of`.
  int32_t ItemsOf(int32_t of, int32_t at, int32_t begin, int32_t group) const {
    int32_t from = at;
    while (from > begin && GroupsOf(items_[from - 1], group).second == of) {
      --from;
    }
    int32_t to = at + 1;
    while (to < num_items_ && GroupsOf(items_[to], group).first == of) ++to;
    return to - from;
  }

  const AttentionPlanShape& shape_;
  int64_t total_;
  AttentionItem* items_;
  int32_t* cta_items_;
  int32_t cta_ = 0;
  int32_t num_items_ = 0;
  int32_t num_slots_;  // the first are the CTAs'
  int32_t num_arrivals_ = 0;
  int64_t cost_ = 0;
};

// How long the chunks of a sequence's rows are: a function of the sequence
// alone.
class Chunker {
 public:
  explicit Chunker(const AttentionPlanShape& shape) : shape_(shape) {}

  int64_t ChunkOf(const AttentionSequence& sequence) {
    const int64_t pairs =
        shape_.num_kv_heads * RowTiles(shape_, sequence.q_len);
    if (pairs != pairs_) {
      pairs_ = pairs;
      chunks_ = ChunksFor(shape_, pairs);
    }
    const KeyRange keys = KeysOf(shape_, sequence, 0, sequence.q_len - 1);
    const int64_t even = CeilDiv(keys.end - keys.begin, chunks_);
    return std::min<int64_t>(RoundUp(std::max(even, kLeastChunk), kKeyTile),
                             kNoChunks);
  }

 private:
  const AttentionPlanShape& shape_;
  int64_t pairs_ = 0;
  int64_t chunks_ = 1;  // of rows of `pairs_`
};

// Calls fn(row tile's item, its keys) for each row tile of the sequence.
template <typename Fn>
void ForEachRowTile(const AttentionPlanShape& shape,
                    const AttentionSequence& sequence, Fn fn) {
  const int64_t rows = int64_t{sequence.q_len} * shape.group;
  for (int64_t row = 0; row < rows; row += kAttentionItemRows) {
    const int64_t end = std::min<int64_t>(row + kAttentionItemRows, rows);
    AttentionItem item = {};
    item.q_begin = sequence.q_begin;
    item.q_len = sequence.q_len;
    item.kv_len = sequence.kv_len;
    item.row_begin = static_cast<int32_t>(row);
    item.num_rows = static_cast<int32_t>(end - row);
    fn(item,
       KeysOf(shape, sequence, row / shape.group, (end - 1) / shape.group));
  }
}

void AddTiles(const AttentionPlanShape& shape,
              const AttentionSequence& sequence, int32_t blocks_begin,
              AttentionTile* tiles, int& num_tiles) {
  for (int32_t token = 0; token < sequence.q_len; token += shape.tile_tokens) {
    const int32_t count = std::min(shape.tile_tokens, sequence.q_len - token);
    const KeyRange keys = KeysOf(shape, sequence, token, token + count - 1);
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

// What DealItems will add to the dealer's cost.
int64_t TotalCost(const AttentionPlanShape& shape,
                  absl::Span<const AttentionSequence> sequences) {
  int64_t total = 0;
  for (const AttentionSequence& sequence : sequences) {
    if (!BecomesItems(shape, sequence.q_len)) continue;
    ForEachRowTile(shape, sequence, [&](const AttentionItem&, KeyRange keys) {
      total += shape.num_kv_heads * (keys.end - keys.begin + kItemOverhead);
    });
  }
  return total;
}

}  // namespace

AttentionPlanShape MakeAttentionPlanShape(const AttentionRow& row,
                                          const AttentionDesc& desc,
                                          int block_size, int num_sms) {
  AttentionPlanShape shape;
  shape.num_kv_heads = desc.num_kv_heads;
  shape.group = desc.num_heads / desc.num_kv_heads;
  shape.head_dim = desc.head_dim;
  shape.window = desc.window;
  shape.causal = desc.causal;
  shape.block_size = block_size;
  if (row.name == "cuda_sm90") {
    shape.grid = num_sms;
    // Tiles are for caches of the queries' type.
    if (desc.kv == desc.activation) {
      shape.tile_tokens = AttentionTileRows(desc.head_dim) / shape.group;
    }
  } else {
    shape.grid = 2 * num_sms;
  }
  return shape;
}

AttentionPlanLimits AttentionPlanLimitsOf(
    const AttentionPlanShape& shape,
    absl::Span<const AttentionSequence> sequences) {
  AttentionPlanLimits limits;
  limits.sequences = static_cast<int64_t>(sequences.size());
  for (const AttentionSequence& sequence : sequences) {
    limits.tokens += sequence.q_len;
    limits.blocks += CeilDiv(sequence.kv_len, shape.block_size);
  }
  return limits;
}

AttentionPlanLayout LayOutAttentionPlan(const AttentionPlanShape& shape,
                                        const AttentionPlanLimits& limits) {
  const int64_t pairs = MaxPairs(shape, limits.sequences, limits.tokens);
  int64_t tiles = 0;
  if (shape.tile_tokens > 0 && !limits.graph) {
    tiles = limits.tokens / shape.tile_tokens + limits.sequences;
  }
  size_t end = 0;
  const auto place = [&](int64_t count, size_t bytes) {
    const size_t begin = end;
    end +=
        static_cast<size_t>(RoundUp(count * static_cast<int64_t>(bytes), 64));
    return begin;
  };
  AttentionPlanLayout layout;
  layout.counters = place(2 + MostKept(shape, pairs).counters, sizeof(int32_t));
  layout.cta_items = place(shape.grid + 1, sizeof(int32_t));
  layout.items = place(pairs + shape.grid, sizeof(AttentionItem));
  layout.tiles = place(tiles, sizeof(AttentionTile));
  layout.blocks = place(limits.blocks, sizeof(int32_t));
  layout.bytes = end;
  return layout;
}

int AttentionCtaSlots(const AttentionPlanShape& shape) {
  return static_cast<int>(CeilDiv(MaxChunks(shape), kAttentionFoldGroup));
}

size_t AttentionWorkspaceBytes(const AttentionPlanShape& shape,
                               int64_t max_sequences, int64_t max_tokens) {
  const int64_t pairs = MaxPairs(shape, max_sequences, max_tokens);
  const int64_t slots = int64_t{shape.grid} * AttentionCtaSlots(shape) +
                        MostKept(shape, pairs).slots;
  // Maximum and sum beside each row of the numerator.
  const int64_t slot_bytes = int64_t{kAttentionItemRows} *
                             (shape.head_dim + 2) *
                             static_cast<int64_t>(sizeof(float));
  return static_cast<size_t>(slots * slot_bytes);
}

AttentionPlan BuildAttentionPlan(const AttentionPlanShape& shape,
                                 const AttentionPlanLimits& limits,
                                 absl::Span<const AttentionSequence> sequences,
                                 std::byte* image) {
  AttentionPlan plan;
  plan.shape = shape;
  plan.layout = LayOutAttentionPlan(shape, limits);
  const AttentionPlanLayout& layout = plan.layout;
  std::memset(image + layout.counters, 0, layout.cta_items - layout.counters);
  auto* tiles = reinterpret_cast<AttentionTile*>(image + layout.tiles);
  auto* blocks = reinterpret_cast<int32_t*>(image + layout.blocks);
  const int64_t total = TotalCost(shape, sequences);
  Chunker chunker(shape);
  Dealer dealer(shape, total,
                reinterpret_cast<AttentionItem*>(image + layout.items),
                reinterpret_cast<int32_t*>(image + layout.cta_items));
  int32_t num_blocks = 0;
  for (const AttentionSequence& sequence : sequences) {
    if (sequence.q_len == 0) continue;
    if (BecomesItems(shape, sequence.q_len)) {
      const int64_t chunk = chunker.ChunkOf(sequence);
      ForEachRowTile(shape, sequence, [&](AttentionItem item, KeyRange keys) {
        item.blocks_begin = num_blocks;
        for (int head = 0; head < shape.num_kv_heads; ++head) {
          item.kv_head = head;
          dealer.Add(item, keys, chunk);
        }
      });
    } else {
      AddTiles(shape, sequence, num_blocks, tiles, plan.num_tiles);
    }
    const int64_t count = CeilDiv(sequence.kv_len, shape.block_size);
    INLAY_DCHECK(num_blocks + count <= limits.blocks);
    std::copy_n(sequence.blocks, count, blocks + num_blocks);
    num_blocks += static_cast<int32_t>(count);
  }
  dealer.Finish();
  INLAY_DCHECK(!limits.graph || plan.num_tiles == 0);
  std::sort(tiles, tiles + plan.num_tiles,
            [](const AttentionTile& a, const AttentionTile& b) {
              const int32_t a_keys = a.key_end - a.key_begin;
              const int32_t b_keys = b.key_end - b.key_begin;
              return a_keys != b_keys ? a_keys > b_keys : a.q_row < b.q_row;
            });
  plan.run_items = limits.graph || total > 0;
  plan.used_bytes =
      layout.blocks + static_cast<size_t>(num_blocks) * sizeof(int32_t);
  return plan;
}

}  // namespace inlay
