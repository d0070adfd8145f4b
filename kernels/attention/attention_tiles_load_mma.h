// attention's tiles by mma: what lies where in shared memory, and how keys,
// values and queries come there (attention_tiles_mma.h says how all of it
// works).
//
// Rows lie one behind another without padding. Of their chunks of 16 bytes the
// lowest bits of the number are changed by the row (Swizzle), so that the same
// chunk of eight rows one after another, which ldmatrix reads at once, is in
// eight different groups of banks. How many bits: rows of 8, 16, 24, 32 chunks
// begin in the same group, all three must change; those of 12 in two groups,
// two; of 10 in four, one.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_TILES_LOAD_MMA_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_TILES_LOAD_MMA_H_

#include <algorithm>

#include "kernels/attention/attention_mma.h"
#include "kernels/attention/attention_tiles_mask.h"
#include "kernels/attention/sm90_ops.h"  // of it, what sm_80 has too
#include "kernels/cuda_divisor.h"

namespace inlay::tiles_mma {

using tiles::KeyWalk;
using tiles::TileMask;

template <int kDim>
struct Shape {
  static constexpr int kRows = kMmaTileRows;
  static constexpr int kKeys = MmaTileKeys(kDim);
  // Rows of a warp, 16 for each fragment of queries: with two of them keys and
  // values are read from shared memory half as often. Wider heads' sums fill
  // the registers with one.
  static constexpr int kFragments = kDim <= 128 ? 2 : 1;
  static constexpr int kWarpRows = 16 * kFragments;
  static constexpr int kWarps = kRows / kWarpRows;
  static constexpr int kThreads = 32 * kWarps;
  // Queries in registers for the whole tile, where there is room: they come
  // through the ring's end, and need no memory of their own.
  static constexpr bool kKeepQueries = kDim != 128;
  static constexpr int kRowBytes = 2 * kDim;
  static constexpr int kChunks = kDim / 8;  // of 16 bytes, a row
  static constexpr int kQueryBytes = kRows * kRowBytes;
  static constexpr int kStageBytes = kKeys * kRowBytes;
  // Keys of a block or its values are a stage.
  static constexpr int kStages = kDim == 128 ? 3 : kDim == 256 ? 6 : 4;
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kTileAt = kRingBytes + (kKeepQueries ? 0 : kQueryBytes);
  static constexpr int kBytes =
      kTileAt + static_cast<int>(sizeof(AttentionTile));
  // Stages that queries do not pass through.
  static constexpr int kFreeStages =
      kKeepQueries ? kStages - kQueryBytes / kStageBytes : kStages;
  // CTAs that registers leave room for on a multiprocessor.
  static constexpr int kCtas = kDim <= 128 ? 2 : 1;

  // Lanes that have a row side by side, a chunk each: as many as the chunks
  // that Swizzle() exchanges.
  static constexpr int kLanes = std::min(8, kChunks & -kChunks);
  static constexpr int kLaneRows = 32 / kLanes;  // of all lanes
  static constexpr int kSpanBytes = 16 * kLanes;

  static_assert(kKeys / kWarps % kLaneRows == 0 && kKeys / kWarps <= kMmaSlots);
  static_assert(kWarpRows % kLaneRows == 0);
  static_assert(kQueryBytes % kStageBytes == 0 && kFreeStages >= 1);
  static_assert(kStages >= 3 && kStageBytes % 128 == 0);

  // By how much chunks of a row are exchanged: an exclusive or.
  __device__ static constexpr int Swizzle(int row) {
    return row / (8 / kLanes) % kLanes;
  }
};

// Every GPU since compute capability 8.0 has so much for one CTA.
constexpr int kSharedMost = 99 * 1024;

struct Args {
  const AttentionTile* tiles;
  const int32_t* blocks;
  const float* sinks;
  const unsigned char* q;
  void* out;
  const unsigned char* keys;  // of block 0, head 0
  int64_t to_values;          // bytes from a key to its value
  int64_t block_stride;
  int64_t head_stride;
  int64_t q_stride;
  int64_t out_stride;
  LaunchDivisor block_slots;
  LaunchDivisor group_rows;  // by group
  int num_kv_heads;
  int group;
  int window;
  bool causal;
  float score_scale;  // of scores (after the softcap) to units of log 2
  float softcap;      // in units of log 2; 0: none
  float cap_scale;    // of scores to twice the cap's argument, in the same
};

// Which chunks of rows a lane brings, and where to: kLanes lanes have a row,
// all lanes kLaneRows of them at a time.
template <int kDim>
class RowCopy {
 public:
  using S = Shape<kDim>;

  // Of the lane, in shared memory, for rows from `first` on, a multiple of 4.
  __device__ static uint32_t To(int first, int lane) {
    const int row = first + lane / S::kLanes;
    return static_cast<uint32_t>(row * S::kRowBytes +
                                 16 * (lane % S::kLanes ^ S::Swizzle(row)));
  }
  __device__ static int From(int lane) {
    return lane / S::kLanes * S::kRowBytes + lane % S::kLanes * 16;
  }
  // Where the lane's chunks of pass `pass` are. Rows of a pass are kLaneRows
  // after those of the one before; where that is 4, every other one is
  // exchanged by 4 chunks more.
  __device__ static uint32_t ToOfPass(uint32_t to, int pass) {
    const uint32_t swapped =
        S::kLaneRows < 8 && pass % 2 != 0 ? to ^ (S::kSpanBytes / 2) : to;
    return swapped + static_cast<uint32_t>(pass * S::kLaneRows * S::kRowBytes);
  }
};

// What brings keys and values of a tile: each warp has rows of its own of every
// block, all in one block of the cache. Keys and values alternate.
template <int kDim, bool kMasked>
class Loader {
 public:
  using S = Shape<kDim>;
  using Copy = RowCopy<kDim>;

  // `tile` is in shared memory: what is read of it seldom needs no registers.
  __device__ Loader(const Args& args, const TileMask& mask,
                    const AttentionTile& tile, int head, int warp, int lane,
                    uint32_t ring)
      : args_(args),
        tile_(tile),
        walk_(tile, mask),
        row_(warp * kRows),
        from_(args.keys + head * args.head_stride + Copy::From(lane)),
        to_(ring + Copy::To(warp * kRows, lane)) {
    Find();
  }

  // Asks for the next block's keys, or that block's values, to be brought to
  // `stage` of the ring; a group of copies, empty where no block is left.
  __device__ __forceinline__ void BringKeys(uint32_t stage) {
    if (!walk_.done()) Bring(from_, stage);
    sm90::CommitCopies();
  }
  __device__ __forceinline__ void BringValues(uint32_t stage) {
    if (!walk_.done()) {
      Bring(from_ + args_.to_values, stage);
      walk_.Next();
      Find();
    }
    sm90::CommitCopies();
  }

 private:
  static constexpr int kRows = S::kKeys / S::kWarps;
  static constexpr int kPasses = kRows / S::kLaneRows;

  // Where the walk's block is; read well before it is needed.
  __device__ void Find() {
    if (walk_.done()) return;
    const int key = walk_.block() * S::kKeys + row_;
    const int block = args_.block_slots.Quotient(key);
    slot_ = args_.block_slots.Remainder(key, block);
    whole_ = key >= tile_.key_begin && key + kRows <= tile_.key_end;
    // Cache blocks that no row sees may not exist any more.
    const bool exists = key < tile_.key_end && key + kRows > tile_.key_begin;
    block_ = exists ? __ldg(args_.blocks + tile_.blocks_begin + block) : 0;
  }

  __device__ __forceinline__ void Bring(const unsigned char* from,
                                        uint32_t stage) const {
    from += block_ * args_.block_stride + slot_ * S::kRowBytes;
    const uint32_t to = to_ + stage;
    if (whole_) {
      ForEachRow(from, to, [](uint32_t at, const unsigned char* row, int) {
        sm90::CopyAsync16(at, row);
      });
      return;
    }
    // Keys that no row of the tile sees are zeros, and so are values: nobody
    // says what lies there, and zero times NaN is NaN.
    const int first = walk_.block() * S::kKeys + row_ +
                      static_cast<int>(threadIdx.x) % 32 / S::kLanes;
    const int begin = tile_.key_begin - first;
    const int end = tile_.key_end - first;
    ForEachRow(from, to, [&](uint32_t at, const unsigned char* row, int key) {
      sm90::CopyAsync16OrZeros(at, row, key >= begin && key < end);
    });
  }
  // fn(to, from, row): the lane's chunks, rows counted from its first.
  template <typename Fn>
  __device__ static __forceinline__ void ForEachRow(const unsigned char* from,
                                                    uint32_t to, Fn fn) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int row = pass * S::kLaneRows;
#pragma unroll
      for (int i = 0; i < S::kRowBytes; i += S::kSpanBytes) {
        fn(Copy::ToOfPass(to, pass) + i, from + row * S::kRowBytes + i, row);
      }
    }
  }

  const Args& args_;
  const AttentionTile& tile_;
  KeyWalk<S::kKeys, kMasked> walk_;
  int row_;
  const unsigned char* from_;
  uint32_t to_;
  int block_ = 0;
  int slot_ = 0;
  bool whole_ = false;  // all keys are some row's
};

// Asks for the queries of a warp to be brought to `to`; rows that do not exist
// are zeros. A group of copies.
template <int kDim>
__device__ inline void BringQueries(const Args& args, const AttentionTile& tile,
                                    int head, int warp, int lane, uint32_t to) {
  using S = Shape<kDim>;
  using Copy = RowCopy<kDim>;
  const int first = warp * S::kWarpRows;
  to += Copy::To(first, lane);
#pragma unroll
  for (int pass = 0; pass < S::kWarpRows / S::kLaneRows; ++pass) {
    const int row = first + pass * S::kLaneRows + lane / S::kLanes;
    const int token = args.group_rows.Quotient(row);
    const bool valid = token < tile.num_tokens;
    const int of = head * args.group + row - token * args.group;
    const unsigned char* from =
        args.q + (tile.q_row + (valid ? token : 0)) * args.q_stride +
        int64_t{of} * S::kRowBytes + lane % S::kLanes * 16;
    const uint32_t at = Copy::ToOfPass(to, pass);
#pragma unroll
    for (int i = 0; i < S::kRowBytes; i += S::kSpanBytes) {
      sm90::CopyAsync16OrZeros(at + i, from + i, valid);
    }
  }
  sm90::CommitCopies();
}

}  // namespace inlay::tiles_mma

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_TILES_LOAD_MMA_H_
