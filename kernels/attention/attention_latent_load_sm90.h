// What lies where in the wide latent kernel's shared memory, its lists of
// items, and the warpgroup that loads (attention_latent_wide_sm90.cu says how
// all of it works).
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_LATENT_LOAD_SM90_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_LATENT_LOAD_SM90_H_

#include "kernels/attention/attention_latent_sm90.h"
#include "kernels/attention/sm90_ops.h"

namespace inlay::latent_sm90 {

constexpr int kHeadDim = 576;
constexpr int kKeys = 64;

// Matrices lie as slabs of 64 columns, 64 rows of 128 bytes each in the
// 128-byte swizzle.
constexpr int kSlabs = kHeadDim / 64;
constexpr int kSlabBytes = 64 * 128;
constexpr int kTileBytes = kSlabs * kSlabBytes;
constexpr int kStages = 2;
constexpr int kWeightStride = kKeys + 8;  // elements: no conflicts of ldmatrix

struct Shared {
  unsigned char queries[kTileBytes];
  unsigned char keys[kStages][kTileBytes];
  uint16_t weights[kRows * kWeightStride];
  // Of the message: a tile's factors, or at an item's end maximum and sum.
  float2 rows[kRows];
  uint64_t query_full;
  uint64_t query_empty;
  uint64_t key_full[kStages];
  uint64_t key_empty[kStages];
  uint64_t message_full;
  uint64_t message_empty;
  int came[kSumHalves];  // what OtherCame() found
};

// Stage and phase of a ring of kStages.
struct Cursor {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void Next() {
    stage ^= 1;
    if (stage == 0) phase ^= 1;
  }
};

// The CTA's list, and which 64 rows of its items are the CTA's.
struct Place {
  __device__ explicit Place(const AttentionItemArgs& args)
      : ctas(args.item_rows / kRows),
        part(static_cast<int>(blockIdx.x) % ctas),
        begin(args.cta_items[static_cast<int>(blockIdx.x) / ctas]),
        end(args.cta_items[static_cast<int>(blockIdx.x) / ctas + 1]) {}

  // Its rows alone; none of them may exist.
  __device__ AttentionItem Item(const AttentionItemArgs& args, int n) const {
    AttentionItem item = args.items[n];
    item.row_begin += part * kRows;
    item.num_rows =
        static_cast<int16_t>(min(kRows, max(0, item.num_rows - part * kRows)));
    return item;
  }

  int ctas;
  int part;
  int begin;
  int end;
};

__device__ inline int FirstTile(const AttentionItem& item) {
  return item.key_begin / kKeys;
}
__device__ inline int EndTile(const AttentionItem& item) {
  return item.key_begin == item.key_end ? FirstTile(item)
                                        : (item.key_end + kKeys - 1) / kKeys;
}

// The warpgroup that loads.
__device__ inline void Load(const AttentionItemArgs& args, Shared& shared) {
  // Eight threads copy 128 bytes of a row; a thread has every 16th row.
  constexpr int kStep = kWarpgroup / 8;
  constexpr int kRowsAThread = 64 / kStep;
  const int thread = static_cast<int>(threadIdx.x);
  const int first_row = thread / 8;
  const int chunk = thread % 8;
  const uint32_t at =
      static_cast<uint32_t>(first_row * 128 + (chunk ^ first_row % 8) * 16);
  const auto copy = [&](uint32_t to, const std::byte* const* rows,
                        unsigned valid) {
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
#pragma unroll
      for (int i = 0; i < kRowsAThread; ++i) {
        sm90::CopyAsync16OrZeros(to + at + slab * kSlabBytes + i * kStep * 128,
                                 rows[i] + slab * 128, (valid >> i & 1) != 0);
      }
    }
  };
  Cursor cursor;
  uint32_t query_phase = 1;
  const Place list(args);
  for (int n = list.begin; n < list.end; ++n) {
    const AttentionItem item = list.Item(args, n);
    const std::byte* rows[kRowsAThread];
    unsigned valid = 0;
#pragma unroll
    for (int i = 0; i < kRowsAThread; ++i) {
      const int row = first_row + i * kStep;
      const int of_sequence =
          item.row_begin + min(row, max(0, item.num_rows - 1));
      valid |= (row < item.num_rows ? 1u : 0u) << i;
      rows[i] = static_cast<const std::byte*>(args.q) +
                (item.q_begin + of_sequence / args.group) * args.q_stride +
                2 * HeadOffset(args, item, of_sequence, kHeadDim) + 16 * chunk;
    }
    sm90::Wait(&shared.query_empty, query_phase);
    query_phase ^= 1;
    copy(sm90::SharedAddress(shared.queries), rows, valid);
    sm90::ArriveAfterCopies(&shared.query_full);
    const int end = EndTile(item);
    // Where the next tile's keys are is asked for a tile ahead, and without
    // branches between: an answer takes as long as a quarter of a tile.
    int found[kRowsAThread];
    const auto key_of = [&](int tile, int i) {
      return tile * kKeys + first_row + i * kStep;
    };
    const auto find = [&](int tile) {
#pragma unroll
      for (int i = 0; i < kRowsAThread; ++i) {
        const int key =
            max(item.key_begin, min(key_of(tile, i), item.key_end - 1));
        found[i] = *AddressOfPlace(args, item, key);
      }
    };
    if (FirstTile(item) < end) find(FirstTile(item));
    for (int tile = FirstTile(item); tile < end; ++tile) {
      valid = 0;
#pragma unroll
      for (int i = 0; i < kRowsAThread; ++i) {
        const int key = key_of(tile, i);
        const bool seen = key >= item.key_begin && key < item.key_end;
        valid |= (seen ? 1u : 0u) << i;
        const int2 place = PlaceFound(args, found[i], key);
        rows[i] = args.kv.base.base + place.x * args.kv.block_stride_bytes +
                  args.kv.k_offset_bytes +
                  (int64_t{item.kv_head} * args.kv.block_size +
                   (seen ? place.y : 0)) *
                      args.kv_row_bytes +
                  16 * chunk;
      }
      if (tile + 1 < end) find(tile + 1);
      sm90::Wait(&shared.key_empty[cursor.stage], cursor.phase ^ 1);
      copy(sm90::SharedAddress(shared.keys[cursor.stage]), rows, valid);
      sm90::ArriveAfterCopies(&shared.key_full[cursor.stage]);
      cursor.Next();
    }
  }
}

}  // namespace inlay::latent_sm90

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_LATENT_LOAD_SM90_H_
