// How product_sm90.cuh shares out jobs and units of K, where things lie in
// shared memory, and a warp's ring of weights.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_RING_SM90_CUH_
#define INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_RING_SM90_CUH_

#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/gemm/quantised/quant_shape.h"

namespace inlay {
namespace {

// Where things lie in shared memory, as offsets.
struct QuantPlaces {
  __device__ explicit QuantPlaces(const QuantShape& shape)
      : rings(kQuantSharedHead),
        x(rings + shape.warps * shape.stages * shape.stage_bytes),
        partials(x + shape.m * shape.x_stride) {}
  static constexpr uint32_t kZeros = 0;
  static constexpr uint32_t kXFull = 16;
  static constexpr uint32_t kPartialFull = 64;
  static constexpr uint32_t kPartialEmpty = 128;
  static constexpr uint32_t kFull = 1024;
  uint32_t rings, x, partials;
};

// The sequence-th job of a cluster: its lanes take them in turn.
__device__ inline int QuantJobOf(const QuantShape& shape, int cluster,
                                 int sequence) {
  return cluster * shape.lanes + (sequence & (shape.lanes - 1)) +
         (sequence >> shape.log_lanes) * shape.lanes * shape.num_clusters;
}
// Its tiles; one beyond the last is the one before, whose sums are left out.
__device__ inline int QuantTileOf(const QuantShape& shape, int job, int which) {
  return min(2 * job + which, shape.tiles - 1);
}

// Where and when the sums of a job go: the block that finishes it, its slot
// there, and the turn of that slot. All cuts are powers of two.
struct QuantTurn {
  __device__ QuantTurn(const QuantShape& shape, int sequence)
      : owner(static_cast<unsigned>(sequence & (shape.cluster - 1))),
        slot(sequence >> shape.log_cluster & (shape.slots - 1)),
        barrier(sequence & (shape.cluster * shape.slots - 1)),
        parity(sequence >> (shape.log_cluster + shape.log_slots) & 1) {}
  unsigned owner;
  int slot;
  int barrier;
  uint32_t parity;
};

// Units of K [begin, end).
struct QuantRange {
  int begin;
  int end;

  // Part `i` of 1 << `log_parts`.
  __device__ QuantRange Part(int i, int log_parts) const {
    return {begin + (i * (end - begin) >> log_parts),
            begin + ((i + 1) * (end - begin) >> log_parts)};
  }
};

// What block `rank` of a cluster has x for.
__device__ inline QuantRange QuantUnitsOf(const QuantShape& shape, int rank) {
  return QuantRange{0, shape.units}.Part(rank, shape.log_cluster);
}
// Sums of two tiles of a slice of K, in shared memory.
inline constexpr int kQuantSlice = 2 * 32 * 16;

// A bulk copy of weights, which nothing reads again before all others have been
// read: they leave the level-2 cache first.
__device__ inline void CopyQuantUnits(uint32_t to, const std::byte* from,
                                      uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "{\n.reg .b64 policy;\n"
      "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes."
      "L2::cache_hint [%0], [%1], %2, [%3], policy;\n}" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// A warp's ring: its first lane fills it, in the order of what the warp
// multiplies.
class QuantRing {
 public:
  // Of block `rank` `share`.
  __device__ QuantRing(const QuantShape& shape, const std::byte* w, int job,
                       int rank, int share, uint32_t ring, uint32_t full)
      : shape_(shape),
        w_(w),
        job_(job),
        units_(QuantUnitsOf(shape, rank)
                   .Part(share, shape.log_warps - shape.log_lanes)),
        next_(units_.begin),
        ring_(ring),
        full_(full) {}

  __device__ QuantRange units() const { return units_; }

  // Fills stage `stage` with what comes next, if anything does.
  __device__ void Feed(int stage) {
    if (next_ == units_.end || job_ >= shape_.jobs) return;
    const int count = min(shape_.stage_units, units_.end - next_);
    const uint32_t bytes = count * shape_.unit_bytes;
    const uint32_t full = full_ + 8 * stage;
    const uint32_t to = ring_ + stage * shape_.stage_bytes;
    const std::byte* from =
        w_ + kQuantHeadBytes + int64_t{next_} * shape_.unit_bytes;
    Expect(full, 2 * bytes);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      CopyQuantUnits(
          to + i * (shape_.stage_bytes / 2),
          from + int64_t{QuantTileOf(shape_, job_, i)} * shape_.tile_bytes,
          bytes, full);
    }
    next_ += count;
    if (next_ < units_.end) return;
    next_ = units_.begin;
    job_ += shape_.lanes * shape_.num_clusters;
  }

 private:
  const QuantShape& shape_;
  const std::byte* w_;
  int job_;
  QuantRange units_;
  int next_;  // unit that was not fed
  uint32_t ring_;
  uint32_t full_;
};

}  // namespace
}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_RING_SM90_CUH_
