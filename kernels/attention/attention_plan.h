// AttentionPlan: what a step's attention does on a CUDA device, decided on the
// host once a step for all layers of equal shape. Pure: no CUDA, no clock, no
// state; equal inputs give equal plans. Source: lean attention
// (arXiv:2405.10480), FlashInfer (arXiv:2501.01005).
//
// A sequence's queries of one KV head are `rows`, token by token and within a
// token head by head: row r is token r / group, head kv_head * group + r %
// group. Work is cut in two ways:
//   items  rows of few queries (decode): <= kAttentionItemRows rows x a range
//          of keys. Each CTA of a grid of fixed size runs a list of items of
//          equal total length, so that no multiprocessor idles.
//   tiles  longer runs of queries (prefill): tokens x all keys they see; a CTA
//          takes one (tile, kv head) after another, the longest first.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_PLAN_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_mask.h"

namespace inlay {

inline constexpr int kAttentionItemRows = 16;
// Sequences of at most this many rows become items, of more, tiles; a single
// query always becomes items.
inline constexpr int kAttentionSplitRows = 64;

// Rows of the kernel that runs tiles: 64 for each warpgroup that its registers
// leave room for.
constexpr int AttentionTileRows(int head_dim) {
  return head_dim <= 64 ? 192 : 128;
}

// Keys that it takes at a time: as many as shared memory and registers hold.
constexpr int AttentionTileKeys(int head_dim) {
  return head_dim <= 128 ? 128 : head_dim <= 192 ? 112 : 80;
}

// What of a layer decides how its work is cut. Layers of equal shape that also
// share a KV group share a plan.
struct AttentionPlanShape {
  int num_kv_heads = 0;
  int group = 0;  // query heads a KV head
  int head_dim = 0;
  int window = 0;
  bool causal = true;
  int block_size = 0;
  int grid = 0;         // CTAs that run items
  int tile_tokens = 0;  // 0: everything becomes items
  // True: a query's result does not depend on the batch. Keys are cut at fixed
  // positions of the sequence, and partial results folded in their order.
  bool batch_invariant = true;
  // With tile_tokens 0: rows are never cut, so that a query's result does not
  // depend either on which other queries of its sequence the step has.
  bool whole_rows = false;

  bool operator==(const AttentionPlanShape&) const = default;
};

// `row` is a CUDA row that serves `desc`; `num_sms` is CudaStream::num_sms().
AttentionPlanShape MakeAttentionPlanShape(const AttentionRow& row,
                                          const AttentionDesc& desc,
                                          int block_size, int num_sms);

// What a plan's memory is laid out for. For a step that runs once: its exact
// numbers (AttentionPlanLimitsOf). For a CUDA graph: the most of its bucket,
// the same at each replay.
struct AttentionPlanLimits {
  int64_t sequences = 0;
  int64_t tokens = 0;  // queries of all sequences
  int64_t blocks = 0;  // entries of all block tables
  bool graph = false;  // items only, whatever there is (every q_len must be 0
                       // or 1), and always launched
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

// One CTA's piece of rows x keys. 64 bytes.
struct AttentionItem {
  int32_t q_begin;       // row of q of the sequence's first token
  int32_t q_len;         // of the sequence
  int32_t kv_len;        // of the sequence
  int32_t blocks_begin;  // of the sequence, index into blocks
  int32_t kv_head;
  int32_t row_begin;  // rows [row_begin, row_begin + num_rows)
  int32_t num_rows;   // 1 .. kAttentionItemRows
  int32_t key_begin;  // keys [key_begin, key_end); none where a mask says so
  int32_t key_end;
  int32_t chunk;        // keys are cut at multiples of this
  int32_t first_chunk;  // of this item, among the rows' chunks
  int32_t num_chunks;   // of the rows in all
  int32_t slot;         // of the rows' first chunk's partial result, the others
                        // behind it, then those of groups of chunks; < 0: this
                        // item is all of the rows, slots are its CTA's
  int32_t arrival;      // of the rows' counters: of finished groups, then of
                        // finished items of each group
  int32_t first_group_items;  // items that this item's first group of chunks is
  int32_t last_group_items;   // cut into, and its last
};
static_assert(sizeof(AttentionItem) == 64);

// Partial results fold in two levels, so that no CTA folds many: the chunks of
// a group in their order, then the groups in theirs. Rows of few chunks are one
// group.
inline constexpr int kAttentionFewChunks = 16;
inline constexpr int kAttentionFoldGroup = 8;

// Tokens of one sequence x the keys they see, for all KV heads. 32 bytes.
struct AttentionTile {
  int32_t q_row;  // of q, of the tile's first token
  int32_t num_tokens;
  int32_t position;   // of the first token
  int32_t key_begin;  // keys [key_begin, key_end)
  int32_t key_end;
  int32_t blocks_begin;
  int32_t runs_begin;  // with a mask: the tile's runs of keys, index into runs,
  int32_t num_blocks;  // and the blocks of keys in them
};
static_assert(sizeof(AttentionTile) == 32);

// One contiguous image; offsets in bytes from its start, all multiples of 64.
//   counters  int32: [0] next tile, [1] CTAs done with tiles, [2 ..] arrivals;
//             zero before and after each launch (kernels set them back)
//   cta_items int32 [grid + 1]: CTA c runs items [cta_items[c], [c + 1])
//   items, tiles, blocks
//   mask_rows, mask_bits, runs  of a mask
struct AttentionPlanLayout {
  size_t counters = 0;
  size_t cta_items = 0;
  size_t items = 0;
  size_t tiles = 0;
  size_t blocks = 0;
  size_t mask_rows = 0;
  size_t mask_bits = 0;
  size_t runs = 0;
  size_t bytes = 0;  // of an image within the limits

  bool operator==(const AttentionPlanLayout&) const = default;
};
AttentionPlanLayout LayOutAttentionPlan(const AttentionPlanShape& shape,
                                        const AttentionPlanLimits& limits);

// Partial results that a CTA may have to keep for itself: of groups of chunks,
// where an item is all of its rows.
int AttentionCtaSlots(const AttentionPlanShape& shape);

// Scratch for AttentionParams::workspace; grows with the sequences, not with
// their lengths.
size_t AttentionWorkspaceBytes(const AttentionPlanShape& shape,
                               int64_t max_sequences, int64_t max_tokens);

struct AttentionPlan {
  AttentionPlanShape shape;
  AttentionPlanLayout layout;
  size_t used_bytes = 0;  // of the image: upload so many
  bool run_items = false;
  bool masked = false;
  int num_tiles = 0;
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
