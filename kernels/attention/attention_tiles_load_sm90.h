// attention's tiles on Hopper: what lies where in shared memory, and the two
// warps that load (attention_tiles_sm90.h says how all of it works).
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_TILES_LOAD_SM90_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_TILES_LOAD_SM90_H_

#include <algorithm>
#include <type_traits>

#include "kernels/attention/attention_sm90.h"
#include "kernels/attention/attention_tiles_mask.h"
#include "kernels/attention/attention_tiles_pieces_sm90.h"
#include "kernels/attention/sm90_ops.h"

namespace inlay::tiles_sm90 {

using tiles::KeyWalk;
using tiles::TileMask;
using tiles::TileRows;

constexpr int kSharedMost = 227 * 1024;
constexpr int kWarpgroup = 128;
// kRopeDim: where it is not 0, keys and values are expanded latents
// (expanded_attention.h): a head's columns of keys but the last kRopeDim, and
// values, by row numbers of their own, the other columns in the cache.
template <int kDim, int kValueDim = kDim, int kRopeDim = 0>
struct Shape {
  static constexpr bool kExpanded = kRopeDim > 0;
  static constexpr int kGroups = AttentionTileRows(kDim) / 64;
  static constexpr int kRows = 64 * kGroups;
  static constexpr int kThreads = kWarpgroup * (kGroups + 1);
  static constexpr int kKeys =
      kExpanded ? ExpandedTileKeys(kDim) : AttentionTileKeys(kDim);
  static constexpr int kSlabs = (kDim + kSlabColumns - 1) / kSlabColumns;
  static constexpr int kQuerySlabBytes = kRows * kSlabRowBytes;
  static constexpr int kSlabBytes = kKeys * kSlabRowBytes;
  static constexpr int kKeySlabs = (kDim - kRopeDim) / kSlabColumns;
  static constexpr int kValueSlabs =
      (kValueDim + kSlabColumns - 1) / kSlabColumns;
  static constexpr int kBlockBytes = kSlabs * kSlabBytes;
  static constexpr int kValueBytes = kValueSlabs * kSlabBytes;
  static constexpr int kStages =
      std::min(4, (kSharedMost - 2048 - kSlabs * kQuerySlabBytes) /
                      (kBlockBytes + kValueBytes));
  // Queries in registers for the whole tile: half the shared memory traffic of
  // the scores, and room for the next tile's queries at once.
  static constexpr bool kKeepQueries = kDim > 64 && kDim <= 128;
  // No more in all than the launch has: 168 or 128 a thread.
  static constexpr int kComputeRegisters = kGroups == 2 ? 232 : 160;
  static constexpr int kLoadRegisters = kGroups == 2 ? 40 : 32;
};

// The end of shared memory.
template <int kDim, int kValueDim = kDim, int kRopeDim = 0>
struct Head {
  static constexpr int kStages = Shape<kDim, kValueDim, kRopeDim>::kStages;
  uint64_t key_full[kStages];
  uint64_t key_empty[kStages];
  uint64_t value_full[kStages];
  uint64_t value_empty[kStages];
  uint64_t query_full;
  uint64_t query_empty;
  AttentionTile tile;
  int head;  // < 0: no tile is left
};

template <int kDim, int kValueDim = kDim, int kRopeDim = 0>
constexpr int SharedBytes() {
  using S = Shape<kDim, kValueDim, kRopeDim>;
  return 1024 + S::kSlabs * S::kQuerySlabBytes +
         S::kStages * (S::kBlockBytes + S::kValueBytes) +
         static_cast<int>(sizeof(Head<kDim, kValueDim, kRopeDim>));
}

struct TileArgs {
  const AttentionTile* tiles;
  const int32_t* blocks;
  int32_t* counters;  // [0] tiles taken beyond the first of each CTA, [1] CTAs
                      // that are done
  const float* sinks;
  void* out;
  int64_t out_stride;
  int num_tiles;
  int num_kv_heads;
  int group;
  int tile_tokens;
  int block_size;
  int box_rows;
  int window;
  bool causal;
  float score_scale;  // of scores (after the softcap) to units of log 2
  float softcap;      // in units of log 2; 0: none
  float cap_scale;    // of scores to twice the cap's argument, in the same
  PieceArgs pieces;
};

struct Maps {
  CUtensorMap q;
  CUtensorMap k;
  CUtensorMap v;
};
// Of expanded latents: k and v are [head][row][columns], a box is a block of
// keys x a slab's columns; `cache` is of latents' rows.
struct ExpandedMaps : Maps {
  CUtensorMap cache;
  int cache_column;  // of keys' last columns
};
template <int kDim, int kValueDim, int kRopeDim>
using MapsOf = std::conditional_t<kRopeDim == 0, Maps, ExpandedMaps>;

// A place in a ring.
template <int kStages>
struct Cursor {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void Next() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

template <int kDim, int kValueDim = kDim, int kRopeDim = 0>
struct Shared {
  using S = Shape<kDim, kValueDim, kRopeDim>;
  __device__ explicit Shared(unsigned char* base) {
    const uint32_t at = sm90::SharedAddress(base);
    queries = base + ((1024 - at % 1024) % 1024);
    keys = queries + S::kSlabs * S::kQuerySlabBytes;
    values = keys + S::kStages * S::kBlockBytes;
    head = reinterpret_cast<Head<kDim, kValueDim, kRopeDim>*>(
        values + S::kStages * S::kValueBytes);
  }
  unsigned char* queries;
  unsigned char* keys;
  unsigned char* values;
  Head<kDim, kValueDim, kRopeDim>* head;
};

// One of the two warps that load.
template <int kDim, bool kMasked, int kValueDim = kDim, int kRopeDim = 0>
class Loader {
 public:
  using S = Shape<kDim, kValueDim, kRopeDim>;
  using MapsType = MapsOf<kDim, kValueDim, kRopeDim>;
  __device__ Loader(const TileArgs& args, const MapsType& maps,
                    const TileMask& mask,
                    const Shared<kDim, kValueDim, kRopeDim>& shared)
      : args_(args),
        maps_(maps),
        mask_(mask),
        shared_(shared),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  // Warp 0.
  __device__ void RunKeys() {
    // In a graph it is the plan that says how many tiles there are.
    const int tiles =
        args_.pieces.keys > 0 ? *args_.pieces.count : args_.num_tiles;
    const int total = tiles * args_.num_kv_heads;
    int next = static_cast<int>(blockIdx.x);
    uint32_t phase = 1;
    while (true) {
      sm90::Wait(&shared_.head->query_empty, phase);
      phase ^= 1;
      if (next >= total) break;
      const int head = next % args_.num_kv_heads;
      const AttentionTile tile = args_.tiles[next / args_.num_kv_heads];
      LoadQueries(tile, head);
      if (lane_ == 0) {
        next = static_cast<int>(gridDim.x) + atomicAdd(args_.counters, 1);
      }
      if constexpr (S::kExpanded) {
        LoadExpanded<true>(tile, head, maps_.k, shared_.keys,
                           shared_.head->key_full, shared_.head->key_empty);
      } else {
        LoadBlocks(tile, head, maps_.k, shared_.keys, shared_.head->key_full,
                   shared_.head->key_empty);
      }
      next = __shfl_sync(0xffffffffu, next, 0);
    }
    if (lane_ != 0) return;
    shared_.head->head = -1;
    sm90::Arrive(&shared_.head->query_full);
    // Nobody takes a tile any more once all are here: for the next launch.
    if (atomicAdd(args_.counters + 1, 1) + 1 == static_cast<int>(gridDim.x)) {
      args_.counters[0] = 0;
      args_.counters[1] = 0;
    }
  }

  // Warp 1.
  __device__ void RunValues() {
    for (uint32_t phase = 0;; phase ^= 1) {
      sm90::Wait(&shared_.head->query_full, phase);
      const int head = shared_.head->head;
      if (head < 0) return;
      const AttentionTile tile = shared_.head->tile;
      sm90::Arrive(&shared_.head->query_empty);
      if constexpr (S::kExpanded) {
        LoadExpanded<false>(tile, head, maps_.v, shared_.values,
                            shared_.head->value_full,
                            shared_.head->value_empty);
      } else {
        LoadBlocks(tile, head, maps_.v, shared_.values,
                   shared_.head->value_full, shared_.head->value_empty);
      }
    }
  }

 private:
  __device__ void LoadQueries(const AttentionTile& tile, int head) {
    if (lane_ == 0) {
      shared_.head->tile = tile;
      shared_.head->head = head;
      const int rows = args_.group * args_.tile_tokens;
      sm90::ArriveExpect(
          &shared_.head->query_full,
          static_cast<uint32_t>(rows * kSlabRowBytes * S::kSlabs));
    }
    __syncwarp();
    if (lane_ < S::kSlabs) {
      sm90::CopyBox3(
          &maps_.q, &shared_.head->query_full,
          sm90::SharedAddress(shared_.queries) + lane_ * S::kQuerySlabBytes,
          lane_ * kSlabColumns, head * args_.group, tile.q_row);
    }
  }

  // This lane's part of a block of keys.
  struct Box {
    int block;
    int slot;
    bool issue;
  };

  __device__ Box FindBox(const AttentionTile& tile, int n) const {
    const int row = lane_ / S::kSlabs * args_.box_rows;
    const int key = n * S::kKeys + row;
    Box box = {};
    // Cache blocks that no row sees may not exist any more.
    box.issue = row < S::kKeys && key >= 0 && key < tile.key_end &&
                key + args_.box_rows > tile.key_begin;
    if (box.issue) {
      box.block = args_.blocks[tile.blocks_begin + key / args_.block_size];
      box.slot = key % args_.block_size;
    }
    return box;
  }

  // From the last block of keys to the first; block ids are read one ahead.
  __device__ void LoadBlocks(const AttentionTile& tile, int head,
                             const CUtensorMap& map, const unsigned char* ring,
                             uint64_t* full, uint64_t* empty) {
    const int slab = lane_ % S::kSlabs;
    const uint32_t to = sm90::SharedAddress(ring) + slab * S::kSlabBytes +
                        lane_ / S::kSlabs * args_.box_rows * kSlabRowBytes;
    KeyWalk<S::kKeys, kMasked> walk(tile, mask_);
    Box next = FindBox(tile, walk.block());
#pragma unroll 1
    while (!walk.done()) {
      const Box box = next;
      walk.Next();
      next = FindBox(tile, walk.block());
      const int boxes = __popc(__ballot_sync(0xffffffffu, box.issue));
      sm90::Wait(&empty[at_.stage], at_.phase ^ 1);
      if (lane_ == 0) {
        sm90::ArriveExpect(
            &full[at_.stage],
            static_cast<uint32_t>(boxes * args_.box_rows * kSlabRowBytes));
      }
      __syncwarp();
      if (box.issue) {
        sm90::CopyBox4(&map, &full[at_.stage], to + at_.stage * S::kBlockBytes,
                       slab * kSlabColumns, box.slot, head, box.block);
      }
      at_.Next();
    }
  }

  // The same of expanded latents: the first lanes bring keys' last slab from
  // the cache, one box each, the last ones a slab each of what is expanded.
  template <bool kOfKeys>
  __device__ void LoadExpanded(const AttentionTile& tile, int head,
                               const CUtensorMap& map,
                               const unsigned char* ring, uint64_t* full,
                               uint64_t* empty) {
    static_assert((kDim - kRopeDim) % kSlabColumns == 0 &&
                  kRopeDim <= kSlabColumns && kValueDim % kSlabColumns == 0);
    constexpr int kBytes = kOfKeys ? S::kBlockBytes : S::kValueBytes;
    constexpr int kSlabs = kOfKeys ? S::kKeySlabs : S::kValueSlabs;
    constexpr int kSlabsBytes = kSlabs * S::kSlabBytes;
    const uint32_t to = sm90::SharedAddress(ring);
    const int slab = lane_ - (32 - kSlabs);
    const int row = lane_ * args_.box_rows;
    KeyWalk<S::kKeys, kMasked> walk(tile, mask_);
#pragma unroll 1
    for (; !walk.done(); walk.Next()) {
      const int key = walk.block() * S::kKeys + row;
      const bool issue = kOfKeys && row < S::kKeys && key < tile.key_end;
      int block = 0;
      if (issue) {
        block = args_.blocks[tile.blocks_begin + key / args_.block_size];
      }
      const int boxes = __popc(__ballot_sync(0xffffffffu, issue));
      sm90::Wait(&empty[at_.stage], at_.phase ^ 1);
      if (lane_ == 0) {
        sm90::ArriveExpect(
            &full[at_.stage],
            static_cast<uint32_t>(kSlabsBytes +
                                  boxes * args_.box_rows * kSlabRowBytes));
      }
      __syncwarp();
      const uint32_t stage = to + at_.stage * kBytes;
      if (slab >= 0) {
        sm90::CopyBox3(&map, &full[at_.stage], stage + slab * S::kSlabBytes,
                       slab * kSlabColumns,
                       tile.runs_begin + walk.block() * S::kKeys, head);
      }
      if (issue) {
        sm90::CopyBox4(&maps_.cache, &full[at_.stage],
                       stage + kSlabsBytes + row * kSlabRowBytes,
                       maps_.cache_column, key % args_.block_size, 0, block);
      }
      at_.Next();
    }
  }

  const TileArgs& args_;
  const MapsType& maps_;
  const TileMask& mask_;
  const Shared<kDim, kValueDim, kRopeDim>& shared_;
  int lane_;
  Cursor<S::kStages> at_;
};

}  // namespace inlay::tiles_sm90

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_TILES_LOAD_SM90_H_
