// Weights of router_sm90.cu: as a warp multiplies them, and their way through
// its ring.
#ifndef INLAY_KERNELS_MOE_ROUTER_WEIGHTS_CUH_
#define INLAY_KERNELS_MOE_ROUTER_WEIGHTS_CUH_

#include "kernels/cuda_float.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/moe/router_shape.h"

namespace inlay {
namespace {

// What of a step a lane has of a row of w: two operands of the mma.
struct alignas(8) RouterPairs {
  uint32_t first;
  uint32_t last;
};

// A lane's four columns of w, as kParts sums of T.
template <typename T, typename W>
struct RouterWeights {
  static constexpr int kParts = sizeof(W) == 4 ? 3 : 1;
  __device__ explicit RouterWeights(const uint8_t* from) {
    if constexpr (kParts == 1) {
      parts[0] = *reinterpret_cast<const RouterPairs*>(from);
    } else {
      float v[4];
      LoadFloats<4>(reinterpret_cast<const float*>(from), v);
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        parts[p] = {NarrowPair<T>(v[0], v[1]), NarrowPair<T>(v[2], v[3])};
        const float2 low = WidenPair<T>(parts[p].first);
        const float2 high = WidenPair<T>(parts[p].last);
        v[0] -= low.x;
        v[1] -= low.y;
        v[2] -= high.x;
        v[3] -= high.y;
      }
    }
  }
  RouterPairs parts[kParts];
};

// Where a slice of w does not lie in shared memory: every warp has a ring of
// its own for what it multiplies, half of the slice's columns of every eighth
// tile, a tile after the other. A piece is a tile's next columns, 128 bytes of
// 16 rows; bytes of a row are 16 by 16 in an order that keeps lanes out of each
// other's banks. All of it is the warp's own, so that it waits for nobody.
template <typename W>
class RouterRing {
 public:
  // Of a piece.
  static constexpr int kColumns = kRouterPieceRow / static_cast<int>(sizeof(W));

  // `w`: from the slice's first column on. Of `columns` columns the first warp
  // of two, `half` 0, has the odd step.
  __device__ RouterRing(const RouterShape& shape, const CudaMatrix<const W>& w,
                        int first, int columns, int pair, int half,
                        uint8_t* shared)
      : shape_(shape),
        w_(w),
        pair_(pair),
        barriers_(static_cast<uint32_t>(__cvta_generic_to_shared(shared)) +
                  RouterHead<kRouterStreamBlocks>::kFull +
                  8 * kMostRouterPlaces * (2 * pair + half)),
        ring_(shared + shape.w +
              (2 * pair + half) * shape.places * kRouterPiece) {
    const int steps = columns / kRouterStep;
    const int more = (steps + 1) / 2;
    begin_ = first + (half == 0 ? 0 : more * kRouterStep);
    own_ = (half == 0 ? more : steps - more) * kRouterStep;
    pieces_ = (own_ + kColumns - 1) / kColumns;
    const int tiles = (shape.tiles - pair + kPairs - 1) / kPairs;
    count_ = max(tiles, 0) * pieces_;
  }

  __device__ int begin() const { return begin_; }
  __device__ int columns() const { return own_; }

  // Asks for as much as there is room for.
  __device__ void Fill() {
    if (lane_ < shape_.places) InitBarrier(barriers_ + 8 * lane_, 32);
    __syncwarp();
    while (asked_ < min(count_, shape_.places)) Ask();
  }

  // The next piece is there: from where to read. Then Free().
  __device__ const uint8_t* Await() const {
    inlay::Await(barriers_ + 8 * turn_.stage, turn_.parity);
    return ring_ + turn_.stage * kRouterPiece;
  }
  __device__ void Free() {
    __syncwarp();
    turn_.Next(shape_.places);
    if (asked_ < count_) Ask();
  }

  // A lane's four columns of the piece's step: of row lane / 4, and 8 more rows
  // on.
  __device__ static const uint8_t* At(const uint8_t* piece, int lane,
                                      int step) {
    constexpr int kQuad = 4 * static_cast<int>(sizeof(W));
    const int row = lane / 4;
    const int at = 4 * kQuad * step + lane % 4 * kQuad;
    return piece + row * kRouterPieceRow + (at ^ Swapped(row));
  }

 private:
  static constexpr int kPairs = kRouterWarps / 2;

  // A step is 32 bytes of 16 bits, which 4 rows read at a time, or 64 of 32,
  // which 2 do.
  __device__ static int Swapped(int row) {
    return sizeof(W) == 4 ? row % 2 * 64 : row % 4 * 32;
  }

  __device__ void Ask() {
    constexpr int kParts = kRouterPieceRow / 16;
    constexpr int kPart = 16 / static_cast<int>(sizeof(W));
    const int tile = asked_ / pieces_ * kPairs + pair_;
    const int column = asked_ % pieces_ * kColumns;
    const int place = asked_ % shape_.places;
    const int part = lane_ % kParts;
    const bool exists = column + part * kPart < own_;
#pragma unroll
    for (int i = 0; i < kRouterTile * kParts / 32; ++i) {
      const int row = i * (32 / kParts) + lane_ / kParts;
      // Of rows that are not there the last one is read.
      const int expert = min(tile * kRouterTile + row, shape_.num_experts - 1);
      const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(
          ring_ + place * kRouterPiece + row * kRouterPieceRow +
          (part * 16 ^ Swapped(row))));
      if (exists) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to),
                     "l"(w_.row(expert) + begin_ + column + part * kPart)
                     : "memory");
      }
    }
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(
                     barriers_ + 8 * place)
                 : "memory");
    ++asked_;
  }

  const RouterShape& shape_;
  const CudaMatrix<const W> w_;
  const int pair_;
  const uint32_t barriers_;
  uint8_t* const ring_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  int begin_;   // column
  int own_;     // columns from there on
  int pieces_;  // of a tile
  int count_;   // of pieces
  int asked_ = 0;
  RingTurn turn_;
};

}  // namespace
}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_ROUTER_WEIGHTS_CUH_
