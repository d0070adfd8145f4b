// What the warps of expert_codes_sm90.cu share: its place in shared memory,
// which job a stage of the rings belongs to; and the warp that finds jobs and
// copies. Its head says how all of it works.
#ifndef INLAY_KERNELS_MOE_EXPERT_CODES_SM90_CUH_
#define INLAY_KERNELS_MOE_EXPERT_CODES_SM90_CUH_

#include <cuda.h>

#include <cstdint>

#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/gemm/quantised/layout.h"
#include "kernels/moe/expert_codes.h"

namespace inlay {
namespace {

constexpr int kTiles = kExpertCodesTiles;
constexpr int kMostColumns = kExpertCodesColumns;
constexpr int kStep = kExpertCodesStep;
constexpr int kBlockRows = kTiles * kQuantRows;  // of w
constexpr int kGroupRows = 64;                   // of a warpgroup
constexpr int kStages = 5;

// How kinds of codes are added up.
struct E4M3Codes {
  using Sum = float;
  static constexpr int kScaleBytes = 4;  // of two rows
  static constexpr int kUnitBytes =
      QuantUnitBytes(QuantCodes::kE4M3, kQuantColumns, false);
};
struct Int8Codes {
  using Sum = int32_t;
  static constexpr int kScaleBytes = 8;  // minima too, which are 0
  static constexpr int kUnitBytes =
      QuantUnitBytes(QuantCodes::kInt8, kQuantColumns, true);
};

// What a stage belongs to. Rows [row, row + rows) of x are slots
// slots[first ..); no rows: there is no more to do.
struct alignas(16) Job {
  int n;  // its first row of w, of its expert's
  int row, rows;
  int first;
  int expert;
};

// A row of x on its way out.
struct Target {
  int slot;
  float scale;  // of x, where it has one for all columns
};

// Offsets in shared memory.
constexpr uint32_t kFull = 0;
constexpr uint32_t kFreed = 8 * kStages;
constexpr uint32_t kJobs = 128;
constexpr uint32_t kXRing = 1024;
constexpr uint32_t kXStage = kMostColumns * kQuantColumns;
static_assert(2 * 8 * kStages <= kJobs &&
              kJobs + kStages * sizeof(Job) <= kXRing);
constexpr int kOutStride = kGroupRows + 4;  // floats: banks of 4 rows differ
constexpr uint32_t kOutBytes = kStep * kOutStride * 4;
constexpr uint32_t kTargetBytes = kMostColumns * sizeof(Target);

template <class Codes, bool kGroups>
struct Layout {
  static constexpr uint32_t kWStage = kTiles * Codes::kUnitBytes;
  static constexpr uint32_t kScaleStage = kGroups ? kMostColumns * 4 : 0;
  static constexpr uint32_t kWRing = kXRing + kStages * kXStage;
  static constexpr uint32_t kScaleRing = kWRing + kStages * kWStage;
  static constexpr uint32_t kOut = kScaleRing + kStages * kScaleStage;
  static constexpr uint32_t kTargets = kOut + 2 * kOutBytes;
  static constexpr uint32_t kBytes = kTargets + 2 * kTargetBytes;
  static_assert(kWStage % 128 == 0 && kBytes <= 227 << 10);
};

// A place in the rings and how often it was there.
struct Stage {
  __device__ void Next() {
    if (++index == kStages) {
      index = 0;
      parity ^= 1;
    }
  }
  int index = 0;
  uint32_t parity = 0;
};

// Jobs in ascending order. All lanes of a warp call it and get the same.
class JobList {
 public:
  __device__ explicit JobList(const ExpertCodesShape& shape) : shape_(shape) {}

  // No rows: there is none.
  __device__ Job Find(int index) {
    Job job = {};
    const int piece = index / shape_.blocks_n;
    const int lane = threadIdx.x % 32;
    for (; expert_ < shape_.num_experts; expert_ += 32) {
      const int mine = expert_ + lane;
      const int begin = Offset(mine);
      const int count = Offset(mine + 1) - begin;
      const int own = (count + kMostColumns - 1) / kMostColumns;
      int sum = own;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += other;
      }
      const unsigned beyond = __ballot_sync(0xffffffffu, pieces_ + sum > piece);
      if (beyond == 0) {
        pieces_ += __shfl_sync(0xffffffffu, sum, 31);
        continue;
      }
      const int which = __ffs(static_cast<int>(beyond)) - 1;
      const int before = pieces_ + __shfl_sync(0xffffffffu, sum - own, which);
      const int skipped = (piece - before) * kMostColumns;
      job.expert = expert_ + which;
      job.first = __shfl_sync(0xffffffffu, begin, which);
      job.row = ExpertRowsBegin(job.expert, job.first) + skipped;
      job.first += skipped;
      job.rows =
          min(kMostColumns, __shfl_sync(0xffffffffu, count, which) - skipped);
      job.n = index % shape_.blocks_n * kBlockRows;
      return job;
    }
    return job;
  }

 private:
  __device__ int Offset(int expert) const {
    return shape_.offsets[min(expert, shape_.num_experts)];
  }

  const ExpertCodesShape& shape_;
  // Experts before have so many pieces; jobs are asked for in order.
  int expert_ = 0;
  int pieces_ = 0;
};

__device__ void CopyRows(uint32_t to, const CUtensorMap& map, int column,
                         int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
__device__ void CopyUnit(uint32_t to, const CUtensorMap& map, int unit,
                         int tile, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(&map), "r"(0), "r"(2 * unit), "r"(tile), "r"(barrier)
      : "memory");
}

// The warp that copies.
template <class Codes, bool kGroups>
class CodesProducer {
  using At = Layout<Codes, kGroups>;

 public:
  __device__ CodesProducer(const ExpertCodesShape& shape, const CUtensorMap& x,
                           const CUtensorMap& w, uint8_t* shared, uint32_t base)
      : shape_(shape), x_(x), w_(w), shared_(shared), base_(base) {}

  __device__ void Run() {
    JobList jobs(shape_);
#pragma unroll 1
    for (int index = static_cast<int>(blockIdx.x);;
         index += static_cast<int>(gridDim.x)) {
      const Job job = jobs.Find(index);
      if (job.rows == 0) break;
#pragma unroll 1
      for (int unit = 0; unit < shape_.units; ++unit) Copy(job, unit);
    }
    AwaitFreed();
    if (threadIdx.x % 32 == 0) {
      JobOf(stage_.index) = {};
      Arrive(base_ + kFull + 8 * stage_.index);
    }
  }

 private:
  __device__ Job& JobOf(int stage) const {
    return reinterpret_cast<Job*>(shared_ + kJobs)[stage];
  }
  // The first time there is nothing to wait for.
  __device__ void AwaitFreed() const {
    Await(base_ + kFreed + 8 * stage_.index, stage_.parity ^ 1);
  }

  __device__ void Copy(const Job& job, int unit) {
    AwaitFreed();
    const int lane = threadIdx.x % 32;
    const uint32_t full = base_ + kFull + 8 * stage_.index;
    const uint32_t w = base_ + At::kWRing + stage_.index * At::kWStage;
    const int first = job.n / kQuantRows;
    const bool apart = shape_.table != nullptr;
    const int tiles = apart ? min(kTiles, shape_.expert_tiles - first) : kTiles;
    if (lane == 0) {
      JobOf(stage_.index) = job;
      const int boxes = (job.rows + kStep - 1) / kStep;
      const int scales = kGroups ? (job.rows + 3) / 4 * 16 : 0;
      Expect(full, tiles * Codes::kUnitBytes + boxes * kStep * kQuantColumns +
                       scales);
      if (!apart) {
        CopyUnit(w, w_, unit, job.expert * shape_.expert_tiles + first, full);
      }
#pragma unroll 1
      for (int i = 0; i < boxes; ++i) {
        CopyRows(
            base_ + kXRing + stage_.index * kXStage + i * kStep * kQuantColumns,
            x_, unit * kQuantColumns, job.row + i * kStep, full);
      }
      if constexpr (kGroups) {
        CopyRow(base_ + At::kScaleRing + stage_.index * At::kScaleStage,
                shape_.x_scales + unit * shape_.rows + job.row, scales, full);
      }
    }
    __syncwarp();
    // What is beyond the matrix's last tile stays as it was: nobody stores its
    // rows.
    if (apart && lane < tiles) {
      CopyRow(w + lane * Codes::kUnitBytes,
              shape_.w + shape_.table[job.expert] + kQuantHeadBytes +
                  (first + lane) * shape_.tile_bytes + unit * Codes::kUnitBytes,
              Codes::kUnitBytes, full);
    }
    stage_.Next();
  }

  const ExpertCodesShape& shape_;
  const CUtensorMap& x_;
  const CUtensorMap& w_;
  uint8_t* shared_;
  uint32_t base_;
  Stage stage_;
};

}  // namespace
}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_EXPERT_CODES_SM90_CUH_
