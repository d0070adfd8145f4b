// AttentionPlan: what a step's attention does on a CUDA device, decided on the
// host once a step for all layers of equal shape. Pure: no CUDA, no clock, no
// state; equal inputs give equal plans. Source: lean attention
// (arXiv:2405.10480), FlashInfer (arXiv:2501.01005).
//
// A sequence's queries of one KV head are `rows`, token by token and within a
// token head by head: row r is token r / group, head kv_head * group + r %
// group. Work is cut in two ways:
//   items  rows of few queries (decode): <= item_rows rows x a range of keys.
//          Each CTA of a grid of fixed size runs a list of items of
//          equal total length, so that no multiprocessor idles.
//   tiles  longer runs of queries (prefill): tokens x all keys they see; a CTA
//          takes one (tile, kv head) after another, the longest first. With
//          AttentionPlanShape::piece_keys single queries too, and where CTAs
//          would idle a tile is cut into pieces of its keys.
// Sequences of items whose block tables begin with the same blocks may form a
// group (attention_prefix.h): items of another kind read the shared keys once
// for the rows of all of them, and their own items read the rest.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_PLAN_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_PLAN_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_mask.h"

namespace inlay {

inline constexpr int kAttentionItemRows = 16;
// Of kernels whose items have 64 rows, those of a wgmma, or 128 for two CTAs.
inline constexpr int kAttentionWideItemRows = 64;
// Sequences of at most this many rows become items, of more, tiles; a single
// query always becomes items.
inline constexpr int kAttentionSplitRows = 64;

// Units that the kernel for caches of 16 bits reads shared keys for: its warps.
// Other kernels do not share: where bytes are decoded in registers, that is
// what takes the time, and each unit would do it again.
inline constexpr int kAttentionUnits16Bit = 4;

// Rows of the kernel that runs tiles: 64 for each warpgroup that its registers
// leave room for.
constexpr int AttentionTileRows(int head_dim) {
  return head_dim <= 64 ? 192 : 128;
}

// Keys that it takes at a time: as many as shared memory and registers hold.
constexpr int AttentionTileKeys(int head_dim) {
  return head_dim <= 128 ? 128 : head_dim <= 192 ? 112 : 80;
}

// The same where keys and values are expanded latents.
inline constexpr int kExpandedTileTokens = 128;
constexpr int ExpandedTileKeys(int head_dim) {
  return head_dim <= 192 ? 128 : AttentionTileKeys(head_dim);
}

// Latent attention's columns: of a head's keys those that are made of the
// latent, and those that all heads have from the row; of its values; the
// latent's.
struct ExpandedDims {
  int key_dim = 0;
  int rope_dim = 0;
  int value_dim = 0;
  int rank = 0;

  bool operator==(const ExpandedDims&) const = default;
};

// What of a layer decides how its work is cut. Layers of equal shape that also
// share a KV group share a plan.
struct AttentionPlanShape {
  int num_kv_heads = 0;
  int group = 0;  // query heads a KV head
  int head_dim = 0;
  int window = 0;
  bool causal = true;
  // As AttentionDesc has it; > 0: sequences of a plan are single queries with
  // their selected keys, without block tables, or expand (SplitUnlessExpanded).
  int selects = 0;
  KeyMix mix;  // likewise
  int block_size = 0;
  int grid = 0;  // CTAs that run items; of 128 rows, pairs of CTAs
  int item_rows = kAttentionItemRows;
  int tile_tokens = 0;  // 0: everything becomes items
  // > 0: tiles are attention_tiles_mma.h's, which takes so many keys at a time
  // and knows no pieces; 0: attention_tiles_sm90.h's (tile_keys()).
  int mma_keys = 0;
  // True: a query's result does not depend on the batch. Keys are cut at fixed
  // positions of the sequence, and partial results folded in their order. Of
  // wide items only with whole_rows: their sums have no room for chunks to fold
  // into.
  bool batch_invariant = true;
  // With tile_tokens 0: rows are never cut, so that a query's result does not
  // depend either on which other queries of its sequence the step has.
  bool whole_rows = false;
  // > 0: everything becomes tiles, and what they compute folds at multiples of
  // so many keys, from the last to the first, whether one CTA does all of a
  // tile or several do: a query's result depends on nothing but its keys. Only
  // where AttentionPieceKeys() says so; without a mask or ALiBi.
  int piece_keys = 0;
  // True: the step has queries that sequences lack, so that any of their keys
  // may be written by the kernel before. Otherwise only those of queries may.
  bool leaves_out = false;
  // Units of rows that an item reads shared keys for at once; 0: every sequence
  // reads all of its keys itself. Results of sequences that share depend on
  // which ones do; others' do not. Needs batch_invariant, and neither
  // whole_rows nor a window.
  int prefix_units = 0;
  // > 0: tiles cannot read the cache. What they need of it is unpacked to 16
  // bits first, into at most so many bytes of the workspace at a time: some
  // sequences, some KV heads (attention_unpack.h). Sequences of which one KV
  // head does not fit become items. 0: tiles read the cache.
  int64_t unpack_bytes = 0;
  // Of latents, with unpack_bytes: sequences for which it takes less time
  // become tiles of which each head, not each KV head, has its own keys and
  // values: those that the cache's rows are expanded to (attention_expand.h).
  // None: nothing expands.
  ExpandedDims expanded = {};
  // Steps of at most so many sequences with at most so many keys, one query
  // each, are for decode_attention (AttentionPlan::few): the first of these
  // that has the rows counts. 0: none.
  struct Few {
    int rows = 0;
    int32_t keys = 0;
    bool shares = false;  // steps whose sequences share a prefix, too
    bool operator==(const Few&) const = default;
  };
  std::array<Few, 5> few = {};

  // Of steps of so many tokens; null: none.
  const Few* FewOf(int64_t tokens) const {
    for (const Few& each : few) {
      if (tokens <= each.rows) return &each;
    }
    return nullptr;
  }
  bool expands() const { return expanded.rank > 0; }
  // Keys that the kernel of tiles takes at a time.
  int tile_keys() const {
    return mma_keys > 0 ? mma_keys : AttentionTileKeys(head_dim);
  }
  // Heads that what is unpacked has.
  int unpacked_heads() const { return expands() ? group : num_kv_heads; }
  bool wide_items() const { return item_rows > kAttentionItemRows; }
  // Where a CTA's share ends, not at chunks.
  bool cuts_anywhere() const {
    return !batch_invariant || (wide_items() && !whole_rows);
  }

  bool operator==(const AttentionPlanShape&) const = default;
};

// `row` is a CUDA row that serves `desc`; `num_sms` is CudaStream::num_sms().
AttentionPlanShape MakeAttentionPlanShape(const AttentionRow& row,
                                          const AttentionDesc& desc,
                                          int block_size, int num_sms);

// What AttentionPlanShape::piece_keys may be for such a layer: a multiple of
// the keys that its kernel takes at a time; 0: its queries must be items.
int AttentionPieceKeys(const AttentionPlanShape& shape);

// Of `sequences`, whose queries see selected keys: each query and what is
// selected for it as a sequence, to `queries`, one after another; returns how
// many.
int64_t SplitIntoQueries(absl::Span<const AttentionSequence> sequences,
                         int selects, AttentionSequence* queries,
                         const KeyMix& mix = {});

// What a plan's memory is laid out for. For a step that runs once: its exact
// numbers (AttentionPlanLimitsOf). For a CUDA graph: the most of its bucket,
// the same at each replay.
struct AttentionPlanLimits {
  int64_t sequences = 0;
  int64_t tokens = 0;  // queries of all sequences
  int64_t blocks = 0;  // entries of all block tables
  bool graph = false;  // items only, or tiles with piece_keys, whatever there
                       // is (every q_len must be 0 or 1), always launched
  // Of a mask, zeros without one.
  int64_t mask_rows = 0;
  int64_t mask_words = 0;
  int64_t key_runs = 0;  // of all tiles
};
// `mask`, here and below: compiled for `sequences` and the shape's order and
// window, or null.
AttentionPlanLimits AttentionPlanLimitsOf(
    const AttentionPlanShape& shape,
    absl::Span<const AttentionSequence> sequences,
    const AttentionMask* mask = nullptr);
// Adds to `limits` what masks of AttentionMaskSpec::reach alone need beside the
// rest.
void AddReachLimits(const AttentionPlanShape& shape,
                    AttentionPlanLimits* limits);

// One CTA's piece of rows x keys. 64 bytes. Of a group's shared keys, where
// num_units > 0, only what says so has a meaning, and all rows see all keys.
struct AttentionItem {
  int32_t q_begin;       // row of q of the sequence's first token
  int32_t q_len;         // of the sequence
  int32_t kv_len;        // of the sequence
  int32_t blocks_begin;  // of the sequence, index into blocks; shared keys too
  int32_t kv_head;       // shared keys too
  int32_t row_begin;     // rows [row_begin, row_begin + num_rows)
  int16_t num_rows;      // 1 .. AttentionPlanShape::item_rows
  int16_t slot_row;      // of the item's first row in its slots
  int32_t key_begin;     // keys [key_begin, key_end); none where a mask says
  int32_t key_end;       // so; shared keys too, at multiples of 64
  int32_t chunk;         // keys are cut at multiples of this
  int32_t first_chunk;   // of this item, among the rows' chunks; shared keys
                         // too: an item is one chunk
  int32_t num_chunks;    // of the rows in all; of all shared keys
  int32_t slot;       // of the rows' first chunk's partial result, the others
                      // behind it, then those of groups of chunks; < 0: this
                      // item is all of the rows, slots are its CTA's. Of shared
                      // keys the first unit's, the others unit_slots apart
  int32_t arrival;    // of the rows' counters: of finished groups of chunks,
                      // then of finished chunks of each group. Of shared keys
                      // the first member's, the others member_counters apart
  uint8_t num_units;  // > 0: the item reads shared keys for so many units
  uint8_t member_counters;
  int16_t unit_slots;
  int32_t units_begin;  // index into blocks, of the first AttentionUnit
};
static_assert(sizeof(AttentionItem) == 64);

// Partial results fold in two levels, so that no CTA folds many: the chunks of
// a group in their order, then the groups in theirs. Rows of few chunks are one
// group.
inline constexpr int kAttentionFewChunks = 16;
inline constexpr int kAttentionFoldGroup = 8;

// Rows of several sequences of a group, which share keys; the same for each KV
// head. A member is the rows of one sequence here, side by side. 128 bytes.
struct AttentionUnit {
  int32_t rows[kAttentionItemRows];  // row of q * query heads a KV head + head
                                     // within those; -1: none
  int16_t own_chunks[kAttentionItemRows];  // of the row's sequence, behind the
                                           // shared ones
  uint32_t firsts;                         // bit r: a member begins at row r
  int32_t members_before;  // in the units before, of the same items
  int32_t reserved[6];
};
static_assert(sizeof(AttentionUnit) == 128);

// Tokens of one sequence x the keys they see, for all KV heads. 48 bytes.
struct AttentionTile {
  int32_t q_row;  // of q, of the tile's first token
  int32_t num_tokens;
  int32_t position;   // of the first token
  int32_t key_begin;  // keys [key_begin, key_end)
  int32_t key_end;
  int32_t blocks_begin;
  int32_t runs_begin;  // with a mask: the tile's runs of keys, index into runs,
                       // of expanded latents: the row of the sequence's key 0;
  int32_t num_blocks;  // and the blocks of keys in them
  // pieces > 1: the keys are those of one of so many pieces, from the last to
  // the first. Of KV head 0: the pieces' partial results, one for each 16 rows,
  // those of a piece side by side, and the rows' counters; other heads' follow.
  int32_t pieces;
  int32_t piece;
  int32_t slot;
  int32_t arrival;
};
static_assert(sizeof(AttentionTile) == 48);

// A row of q of a step of few queries. Rows of nobody are zeros.
struct AttentionQuery {
  int32_t kv_len;
  int32_t blocks_begin;  // index into blocks
};

// One contiguous image; offsets in bytes from its start, all multiples of 64.
//   counters  int32: [0] next tile, [1] CTAs done with tiles, [2 ..] arrivals;
//             zero before and after each launch (kernels set them back). With
//             piece_keys [2] is how many tiles there are, arrivals follow
//   cta_items int32 [grid + 1]: CTA c runs items [cta_items[c], [c + 1])
//   queries   AttentionQuery [tokens], where `few` allows so many
//   items, tiles
//   blocks    int32: the block tables, and then groups' AttentionUnits; with
//             unpack_bytes, tables of tiles are of the unpacked cache (of
//             expanded latents they stay the cache's), and the cache's blocks
//             that rounds unpack come behind all tables
//   mask_rows, mask_bits, runs  of a mask
//   scratch   of BuildAttentionPlan, not for the device
struct AttentionPlanLayout {
  size_t counters = 0;
  size_t cta_items = 0;
  size_t queries = 0;
  size_t items = 0;
  size_t tiles = 0;
  size_t blocks = 0;
  size_t mask_rows = 0;
  size_t mask_bits = 0;
  size_t runs = 0;
  size_t scratch = 0;
  size_t bytes = 0;  // of an image within the limits

  bool operator==(const AttentionPlanLayout&) const = default;
};
AttentionPlanLayout LayOutAttentionPlan(const AttentionPlanShape& shape,
                                        const AttentionPlanLimits& limits);

// Partial results that a CTA may have to keep for itself: of groups of chunks,
// where an item is all of its rows.
int AttentionCtaSlots(const AttentionPlanShape& shape);

// Of a partial result of a piece: numerators of 16 rows, and their maxima and
// sums.
constexpr size_t AttentionPieceSlotBytes(int head_dim) {
  return static_cast<size_t>(kAttentionItemRows * (head_dim + 2)) *
         sizeof(float);
}

// Scratch for AttentionParams::workspace; grows with the sequences, not with
// their lengths.
size_t AttentionWorkspaceBytes(const AttentionPlanShape& shape,
                               int64_t max_sequences, int64_t max_tokens);

// Tiles that run together over an unpacked cache, block i of which is the
// cache's block blocks[first_block + i].
struct AttentionUnpackRound {
  int32_t first_tile;
  int32_t num_tiles;
  int32_t first_block;
  int32_t num_blocks;
  int32_t heads = 0;  // unpacked at a time
};

// Queries [begin, begin + count) of a step.
struct AttentionTokenRange {
  int32_t begin;
  int32_t count;
};

struct AttentionPlan {
  AttentionPlanShape shape;
  AttentionPlanLayout layout;
  size_t used_bytes = 0;  // of the image: upload so many
  bool run_items = false;
  // There are items of shared keys. Plans that differ in this are launched
  // differently: a CUDA graph is for one of the two.
  bool shares = false;
  // decode_attention may run instead of items, which are there all the same.
  // Plans that differ in this may be launched differently, too.
  bool few = false;
  bool masked = false;
  int num_tiles = 0;
  // With unpack_bytes: the tiles, none twice, and what of the workspace the
  // unpacked cache takes, a multiple of 64; partial results are behind it.
  absl::InlinedVector<AttentionUnpackRound, 1> rounds;
  size_t unpacked_bytes = 0;
  // Where the shape expands and there are tiles: the queries of items.
  absl::InlinedVector<AttentionTokenRange, 2> item_tokens;
  // The image on the device, set by whoever uploads it; must stay until the
  // last layer has run.
  std::byte* device = nullptr;
};

// Writes the image to `image` (LayOutAttentionPlan(shape, limits).bytes bytes,
// 64-byte aligned; pinned memory for a fast upload) and returns what the launch
// needs. `sequences` are as AttentionParams has them and within `limits`:
// checked where assertions are.
AttentionPlan BuildAttentionPlan(const AttentionPlanShape& shape,
                                 const AttentionPlanLimits& limits,
                                 absl::Span<const AttentionSequence> sequences,
                                 std::byte* image,
                                 const AttentionMask* mask = nullptr);

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_PLAN_H_
