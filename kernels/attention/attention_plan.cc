#include "kernels/attention/attention_plan.h"

#include <algorithm>

#include "kernels/attention/attention_mma.h"
#include "kernels/attention/attention_pieces.h"
#include "kernels/attention/attention_plan_tiles.h"
#include "kernels/attention/attention_prefix_deal.h"
#include "kernels/attention/attention_unpack.h"
#include "memory/status.h"

namespace inlay {
namespace {

int64_t MaxPairs(const AttentionPlanShape& shape, int64_t sequences,
                 int64_t tokens) {
  return shape.num_kv_heads *
         (tokens * shape.group / shape.item_rows + sequences);
}

// What items may need at most, of `pairs` pairs of a row tile and a KV head.
// Beside groups, only those that lie across a border between two CTAs have
// partial results; where keys are cut anywhere, an item is a chunk.
ItemRoom MostItems(const AttentionPlanShape& shape, int64_t pairs,
                   int64_t sequences) {
  if (shape.piece_keys > 0) return PieceRoom(shape);
  const int64_t split = std::min<int64_t>(shape.grid, pairs);
  const int64_t chunks = std::max(split * MaxChunks(shape), split + shape.grid);
  const ItemRoom groups = GroupRoom(shape, sequences);
  const ItemRoom cuts = CutRoom(shape, sequences);
  ItemRoom room;
  room.items = pairs + shape.grid + groups.items;
  room.counters = 2 * split + chunks / kAttentionFoldGroup;
  room.slots = chunks + room.counters + groups.slots + cuts.slots;
  room.counters += groups.counters + cuts.counters;
  return room;
}

// Entries of `blocks` behind the block tables: units, what rounds unpack.
int64_t MoreBlocks(const AttentionPlanShape& shape,
                   const AttentionPlanLimits& limits) {
  if (shape.unpack_bytes > 0) {
    return shape.tile_tokens == 0 || limits.graph ? 0 : limits.blocks;
  }
  if (!SharesPrefixes(shape, limits.sequences)) return 0;
  const int64_t tiles =
      limits.tokens * shape.group / shape.item_rows + limits.sequences;
  return tiles * kUnitWords;
}

// Entries of the sequence's block table.
int64_t BlocksOf(const AttentionPlanShape& shape,
                 const AttentionSequence& sequence) {
  if (sequence.q_len == 0) return 0;
  if (shape.selects > 0 && sequence.blocks == nullptr) return 0;
  return CeilDiv(sequence.kv_len, shape.block_size);
}

// Whether a plan has a list of its queries.
bool HasQueries(const AttentionPlanShape& shape,
                const AttentionPlanLimits& limits) {
  return limits.tokens > 0 && shape.FewOf(limits.tokens) != nullptr;
}

// Lists the queries; whether decode_attention may run.
bool ListQueries(const AttentionPlanShape& shape,
                 const AttentionPlanLimits& limits,
                 absl::Span<const AttentionSequence> sequences,
                 AttentionQuery* queries) {
  std::fill_n(queries, limits.tokens, AttentionQuery{});
  const int32_t most_keys = shape.FewOf(limits.tokens)->keys;
  bool few = true;
  int32_t blocks_begin = 0;
  for (const AttentionSequence& sequence : sequences) {
    if (sequence.q_len == 0) continue;
    few = few && sequence.q_len == 1 && sequence.kv_len <= most_keys;
    queries[sequence.q_begin] = {sequence.kv_len, blocks_begin};
    blocks_begin += static_cast<int32_t>(BlocksOf(shape, sequence));
  }
  return few;
}

// Copies all block tables, one behind the other; returns their entries. What
// they cost that are in no group is added to `cost`.
int32_t CopyBlocks(const AttentionPlanShape& shape, const AttentionMask* mask,
                   absl::Span<const AttentionSequence> sequences,
                   PrefixFinder* finder, int32_t* blocks, int64_t& cost) {
  int32_t num_blocks = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const AttentionSequence& sequence = sequences[i];
    const int64_t count = BlocksOf(shape, sequence);
    if (finder != nullptr) finder->node(i).blocks_begin = num_blocks;
    if (finder == nullptr || !finder->node(i).grouped) {
      cost += CostAlone(shape, mask, sequence);
    }
    std::copy_n(sequence.blocks, count, blocks + num_blocks);
    num_blocks += static_cast<int32_t>(count);
  }
  return num_blocks;
}

void AddItemTokens(const AttentionSequence& sequence, AttentionPlan& plan) {
  if (!plan.item_tokens.empty()) {
    AttentionTokenRange& last = plan.item_tokens.back();
    if (last.begin + last.count == sequence.q_begin) {
      last.count += sequence.q_len;
      return;
    }
  }
  plan.item_tokens.push_back({sequence.q_begin, sequence.q_len});
}

// Deals out what the sequence becomes where it is in no group: items, or tiles.
void DealAlone(const AttentionPlanShape& shape, const AttentionMask* mask,
               const AttentionSequence& sequence, int32_t blocks_begin,
               Chunker& chunker, Dealer& dealer, UnpackRounds& rounds,
               PieceDealer& pieces, AttentionTile* tiles, AttentionPlan& plan) {
  if (sequence.q_len == 0) return;
  if (shape.piece_keys > 0) {
    return pieces.Add(sequence, blocks_begin, tiles, plan.num_tiles);
  }
  if (!BecomesItems(shape, mask, sequence)) {
    int32_t first_block = 0;
    if (shape.unpack_bytes > 0) {
      first_block = rounds.Add(sequence, blocks_begin, plan);
    }
    const int first_tile = plan.num_tiles;
    AddTiles(shape, mask, sequence, blocks_begin, tiles, plan.num_tiles);
    if (!shape.expands()) return;
    for (int i = first_tile; i < plan.num_tiles; ++i) {
      tiles[i].runs_begin = first_block * shape.block_size;
    }
    return;
  }
  if (shape.expands()) AddItemTokens(sequence, plan);
  const int64_t chunk = chunker.ChunkOf(sequence);
  for (int64_t row = 0; row < int64_t{sequence.q_len} * shape.group;
       row += shape.item_rows) {
    AttentionItem item = RowTileItem(shape, sequence, row);
    item.blocks_begin = blocks_begin;
    const KeyRange keys = KeysOf(shape, mask, sequence, item);
    for (int head = 0; head < shape.num_kv_heads; ++head) {
      item.kv_head = head;
      dealer.Add(item, keys, chunk);
    }
  }
}

// Of cuda_latent: attention_latent_wide_sm90.cu.
bool HasWideItems(const AttentionDesc& desc) {
  return desc.head_dim == 576 && desc.value_dim == 512;
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
  shape.selects = desc.selects;
  shape.mix = desc.mix;
  shape.block_size = block_size;
  if (row.name == "cuda_sm90") {
    shape.grid = num_sms;
    // Selected keys are each query's own: items, and nothing is shared.
    if (desc.selects > 0) return shape;
    shape.tile_tokens = AttentionTileRows(desc.head_dim) / shape.group;
    if (desc.kv == desc.activation) {
      shape.prefix_units = kAttentionUnits16Bit;
    } else {
      shape.unpack_bytes = kUnpackBytes;
      shape.batch_invariant = false;
    }
  } else {
    // Two CTAs of cuda_plain fit, but where heads are wide.
    const bool mma = row.name == "cuda_mma" && block_size % kMmaSlots == 0;
    const bool two = !mma && row.name != "cuda_latent" && desc.head_dim <= 256;
    shape.grid = two ? 2 * num_sms : num_sms;
    if (mma && desc.selects == 0 && desc.kv == desc.activation) {
      shape.tile_tokens = kMmaTileRows / shape.group;
      shape.mma_keys = MmaTileKeys(desc.head_dim);
    }
    if (row.name == "cuda_latent" && HasWideItems(desc)) {
      const int ctas = shape.group > kAttentionWideItemRows ? 2 : 1;
      shape.item_rows = ctas * kAttentionWideItemRows;
      shape.grid = num_sms / ctas;
    }
  }
  return shape;
}

int64_t SplitIntoQueries(absl::Span<const AttentionSequence> sequences,
                         int selects, AttentionSequence* queries,
                         const KeyMix& mix) {
  int64_t count = 0;
  for (const AttentionSequence& sequence : sequences) {
    const int32_t start = sequence.kv_len - sequence.q_len;
    for (int32_t i = 0; i < sequence.q_len; ++i) {
      queries[count++] = {sequence.q_begin + i, 1,
                          mix.Count(selects, start + i), nullptr};
    }
  }
  return count;
}

AttentionPlanLimits AttentionPlanLimitsOf(
    const AttentionPlanShape& shape,
    absl::Span<const AttentionSequence> sequences, const AttentionMask* mask) {
  AttentionPlanLimits limits;
  if (mask != nullptr) {
    limits.mask_rows = static_cast<int64_t>(mask->rows.size());
    limits.mask_words = static_cast<int64_t>(mask->bits.size());
  }
  limits.sequences = static_cast<int64_t>(sequences.size());
  for (const AttentionSequence& sequence : sequences) {
    limits.tokens += sequence.q_len;
    if (shape.selects == 0 || sequence.blocks != nullptr) {
      limits.blocks += CeilDiv(sequence.kv_len, shape.block_size);
    }
    if (mask != nullptr) limits.key_runs += MaxKeyRuns(shape, *mask, sequence);
  }
  return limits;
}

void AddReachLimits(const AttentionPlanShape& shape,
                    AttentionPlanLimits* limits) {
  limits->mask_rows = limits->tokens;
  if (limits->graph || shape.tile_tokens == 0) return;
  constexpr int64_t kRuns = 3;  // MaxAttentionKeyRuns() of rows without bits
  limits->key_runs =
      kRuns * (limits->tokens / shape.tile_tokens + limits->sequences);
}

AttentionPlanLayout LayOutAttentionPlan(const AttentionPlanShape& shape,
                                        const AttentionPlanLimits& limits) {
  const int64_t pairs = MaxPairs(shape, limits.sequences, limits.tokens);
  int64_t tiles = 0;
  if (shape.piece_keys > 0) {
    tiles = MaxPieceTiles(shape, limits);
  } else if (shape.tile_tokens > 0 && !limits.graph) {
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
  const ItemRoom room = MostItems(shape, pairs, limits.sequences);
  layout.counters = place(2 + room.counters, sizeof(int32_t));
  layout.cta_items = place(shape.grid + 1, sizeof(int32_t));
  layout.queries = place(HasQueries(shape, limits) ? limits.tokens : 0,
                         sizeof(AttentionQuery));
  layout.items = place(room.items, sizeof(AttentionItem));
  layout.tiles = place(tiles, sizeof(AttentionTile));
  layout.blocks =
      place(limits.blocks + MoreBlocks(shape, limits), sizeof(int32_t));
  layout.mask_rows = place(limits.mask_rows, sizeof(AttentionRowKeys));
  layout.mask_bits = place(limits.mask_words, sizeof(uint32_t));
  layout.runs = place(limits.key_runs, sizeof(AttentionKeyRun));
  layout.scratch =
      place(SharesPrefixes(shape, limits.sequences)
                ? static_cast<int64_t>(PrefixScratchBytes(limits.sequences))
                : 0,
            1);
  layout.bytes = end;
  return layout;
}

int AttentionCtaSlots(const AttentionPlanShape& shape) {
  const int64_t chunks = MaxChunks(shape);
  if (chunks == 1) return 0;
  return static_cast<int>(CeilDiv(chunks, kAttentionFoldGroup));
}

size_t AttentionWorkspaceBytes(const AttentionPlanShape& shape,
                               int64_t max_sequences, int64_t max_tokens) {
  if (shape.piece_keys > 0) return PieceWorkspaceBytes(shape);
  const int64_t pairs = MaxPairs(shape, max_sequences, max_tokens);
  const int64_t slots = int64_t{shape.grid} * AttentionCtaSlots(shape) +
                        MostItems(shape, pairs, max_sequences).slots;
  // Maximum and sum beside each row of the numerator.
  const int64_t slot_bytes = int64_t{shape.item_rows} * (shape.head_dim + 2) *
                             static_cast<int64_t>(sizeof(float));
  return static_cast<size_t>(slots * slot_bytes +
                             MaxUnpackedBytes(shape, max_tokens));
}

AttentionPlan BuildAttentionPlan(const AttentionPlanShape& shape,
                                 const AttentionPlanLimits& limits,
                                 absl::Span<const AttentionSequence> sequences,
                                 std::byte* image, const AttentionMask* mask) {
  AttentionPlan plan;
  plan.shape = shape;
  plan.layout = LayOutAttentionPlan(shape, limits);
  const AttentionPlanLayout& layout = plan.layout;
  auto* counters = reinterpret_cast<int32_t*>(image + layout.counters);
  auto* tiles = reinterpret_cast<AttentionTile*>(image + layout.tiles);
  auto* blocks = reinterpret_cast<int32_t*>(image + layout.blocks);
  const bool shares =
      mask == nullptr &&
      SharesPrefixes(shape, static_cast<int64_t>(sequences.size()));
  PrefixFinder finder(shape, sequences, image + layout.scratch);
  if (shares) finder.Find();
  int64_t total = 0;
  int32_t num_blocks = CopyBlocks(shape, mask, sequences,
                                  shares ? &finder : nullptr, blocks, total);
  INLAY_DCHECK(num_blocks <= limits.blocks);
  GroupDealer groups(shape, sequences, finder);
  total = groups.Admit(total, GroupRoom(shape, limits.sequences));
  const bool wide = shape.wide_items() && CutsAnywhere(shape);
  Dealer dealer(shape, total, wide ? WideShare(shape, mask, sequences) : 0,
                reinterpret_cast<AttentionItem*>(image + layout.items),
                reinterpret_cast<int32_t*>(image + layout.cta_items));
  plan.shares = groups.Deal(dealer, blocks, num_blocks);
  if (mask == nullptr && HasQueries(shape, limits)) {
    plan.few =
        ListQueries(shape, limits, sequences,
                    reinterpret_cast<AttentionQuery*>(image + layout.queries));
    if (plan.shares && !shape.FewOf(limits.tokens)->shares) plan.few = false;
  }
  Chunker chunker(shape, mask, total);
  UnpackRounds rounds(shape, mask, blocks, num_blocks);
  PieceDealer pieces(shape, sequences);
  int32_t blocks_begin = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (!shares || !finder.node(i).grouped) {
      DealAlone(shape, mask, sequences[i], blocks_begin, chunker, dealer,
                rounds, pieces, tiles, plan);
    }
    blocks_begin += static_cast<int32_t>(BlocksOf(shape, sequences[i]));
  }
  dealer.Finish();
  num_blocks = rounds.Finish(plan);
  std::fill_n(counters, 2 + dealer.num_arrivals(), 0);
  if (shape.piece_keys > 0) {
    counters[2] = plan.num_tiles;
    std::fill_n(counters + 3, pieces.num_arrivals(), 0);
  }
  INLAY_DCHECK(!limits.graph || plan.num_tiles == 0 || shape.piece_keys > 0);
  plan.run_items = (limits.graph && shape.piece_keys == 0) || total > 0;
  plan.used_bytes =
      layout.blocks + static_cast<size_t>(num_blocks) * sizeof(int32_t);
  if (mask != nullptr) {
    plan.masked = true;
    plan.used_bytes = layout.runs + WriteMask(plan, *mask, tiles, image);
  }
  SortTiles(plan, tiles);
  return plan;
}

}  // namespace inlay
