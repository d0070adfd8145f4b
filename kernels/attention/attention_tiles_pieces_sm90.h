// attention's tiles on Hopper, in pieces (AttentionPlanShape::piece_keys):
// where partial results lie, and how they fold. One function folds, whether a
// CTA goes through all pieces of a tile or the last of several that share it:
// the bits are the same.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_TILES_PIECES_SM90_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_TILES_PIECES_SM90_H_

#include "kernels/attention/attention_items_cuda.h"
#include "kernels/attention/attention_plan.h"

namespace inlay::tiles_sm90 {

// A launch's, in the workspace and the plan.
struct PieceArgs {
  int keys = 0;                    // of a piece
  const int32_t* count = nullptr;  // tiles; null: TileArgs says how many
  unsigned char* own = nullptr;    // partial results: of each CTA's tile
  unsigned char* slots = nullptr;  // of pieces
  int32_t* arrivals = nullptr;
};

// The blocks of a tile's keys [begin, end), as KeyWalk goes through all.
template <int kKeys>
class PieceWalk {
 public:
  __device__ PieceWalk(const AttentionTile& tile, int begin, int end)
      : first_(max(begin, tile.key_begin) / kKeys),
        last_(tile.key_begin / kKeys),
        n_((min(end, tile.key_end) - 1) / kKeys) {}
  __device__ bool done() const { return n_ < first_; }
  __device__ bool last() const { return n_ == last_; }  // of the tile
  __device__ int block() const { return n_; }
  __device__ int before() const { return n_ + 1; }
  __device__ bool partial() const { return true; }
  __device__ void Next() { --n_; }

 private:
  int first_;
  int last_;
  int n_;
};

// What a thread has of a warp's 16 rows: of rows r = 0 and 1 maxima (in units
// of the scores) and sums; elements 4 j + 2 r and 4 j + 2 r + 1 of o are row
// r's.
struct PieceSums {
  float m[2];
  float l[2];
};

// How much of each of two partial results counts, of rows r.
struct PieceFactors {
  __device__ PieceFactors(PieceSums& total, const PieceSums& part,
                          float scale) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float top = fmaxf(total.m[r], part.m[r]);
      // Rows that see no key of either have equal maxima.
      of_total[r] = total.m[r] == top ? 1.0f : Exp2((total.m[r] - top) * scale);
      of_part[r] = part.m[r] == top ? 1.0f : Exp2((part.m[r] - top) * scale);
      total.m[r] = top;
      total.l[r] =
          __fmaf_rn(part.l[r], of_part[r], __fmul_rn(total.l[r], of_total[r]));
    }
  }
  __device__ float Fold(int r, float total, float part) const {
    return __fmaf_rn(part, of_part[r], __fmul_rn(total, of_total[r]));
  }
  float of_total[2];
  float of_part[2];
};

// A warp's partial result in memory, of kDim columns: pairs of o side by side
// for all lanes, then maxima and sums. Rows that do not exist are left out.
template <int kDim>
class PieceSlot {
 public:
  static constexpr int kPairs = kDim / 4;
  static constexpr size_t kBytes = AttentionPieceSlotBytes(kDim);

  __device__ explicit PieceSlot(unsigned char* slot)
      : pairs_(reinterpret_cast<float2*>(slot) + threadIdx.x % 32),
        sums_(reinterpret_cast<float2*>(slot) + kPairs * 32 +
              threadIdx.x % 32 / 4) {}

  __device__ void Store(const float (&o)[kDim / 2], const PieceSums& sums,
                        const bool (&exists)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (!exists[r]) continue;
#pragma unroll
      for (int j = 0; j < kPairs / 2; ++j) {
        __stcg(pairs_ + (2 * j + r) * 32,
               make_float2(o[4 * j + 2 * r], o[4 * j + 2 * r + 1]));
      }
      if (threadIdx.x % 4 == 0) {
        __stcg(sums_ + 8 * r, make_float2(sums.m[r], sums.l[r]));
      }
    }
  }

  __device__ PieceSums Sums(const bool (&exists)[2]) const {
    PieceSums sums = {};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (!exists[r]) continue;
      const float2 both = __ldcg(sums_ + 8 * r);
      sums.m[r] = both.x;
      sums.l[r] = both.y;
    }
    return sums;
  }

  // fn(i, r, x): element i of o, of row r, is x here.
  template <typename Fn>
  __device__ void ForEach(const bool (&exists)[2], Fn fn) const {
    constexpr int kAtOnce = kPairs % 8 == 0 ? 8 : 4;
    static_assert(kPairs % kAtOnce == 0);
#pragma unroll
    for (int j0 = 0; j0 < kPairs; j0 += kAtOnce) {
      float2 x[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        x[j] = exists[j % 2] ? __ldcg(pairs_ + (j0 + j) * 32)
                             : make_float2(0.0f, 0.0f);
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = (j0 + j) / 2 * 4 + j % 2 * 2;
        fn(i, j % 2, x[j].x);
        fn(i + 1, j % 2, x[j].y);
      }
    }
  }

 private:
  float2* pairs_;
  float2* sums_;
};

// The partial results of a tile's warp, and who folds them.
template <int kDim>
class PieceRows {
 public:
  // `warp` has rows 16 warp on, of `rows`.
  __device__ PieceRows(const PieceArgs& args, const AttentionTile& tile,
                       int head, int rows, int warp)
      : args_(args), pieces_(tile.pieces) {
    const int warps = (rows + kAttentionItemRows - 1) / kAttentionItemRows;
    slot_ = tile.slot + (head * tile.pieces + tile.piece) * warps + warp;
    first_ = slot_ - tile.piece * warps;
    stride_ = warps;
    arrival_ = args.arrivals + tile.arrival + head * warps + warp;
  }

  // Stores this piece's, and where all are there now, folds them into o and
  // `sums`; whether they were. The warp together.
  __device__ bool Finish(float (&o)[kDim / 2], PieceSums& sums,
                         const bool (&exists)[2], float scale) const {
    At(slot_).Store(o, sums, exists);
    __threadfence();
    __syncwarp();
    int before = 0;
    if (threadIdx.x % 32 == 0) before = atomicAdd(arrival_, 1);
    before = __shfl_sync(0xffffffffu, before, 0);
    if (before + 1 < pieces_) return false;
    __threadfence();
    if (threadIdx.x % 32 == 0) *arrival_ = 0;  // for the next launch
    sums = At(first_).Sums(exists);
    At(first_).ForEach(exists, [&](int i, int, float x) { o[i] = x; });
#pragma unroll 1
    for (int piece = 1; piece < pieces_; ++piece) {
      const PieceSlot<kDim> slot = At(first_ + piece * stride_);
      const PieceFactors factors(sums, slot.Sums(exists), scale);
      slot.ForEach(exists, [&](int i, int r, float x) {
        o[i] = factors.Fold(r, o[i], x);
      });
    }
    return true;
  }

 private:
  __device__ PieceSlot<kDim> At(int slot) const {
    return PieceSlot<kDim>(args_.slots + slot * PieceSlot<kDim>::kBytes);
  }

  const PieceArgs& args_;
  int pieces_;
  int slot_;    // of this piece
  int first_;   // of the first
  int stride_;  // from one piece's to the next's
  int32_t* arrival_;
};

}  // namespace inlay::tiles_sm90

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_TILES_PIECES_SM90_H_
