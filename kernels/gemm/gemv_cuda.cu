// gemm for few rows of x: streams the weights once, as fast as memory gives
// them. Tensor cores do the arithmetic: 16 rows of w are the first operand of
// mma.m16n8k16, up to 8 rows of x the second (PTX ISA, "Matrix fragments for
// mma.m16n8k16"). A column of the product depends on no other, so a row of y
// is the same in every batch.
//
// Mapping: a cluster of C blocks takes tiles of 16 rows of w; its 8 C warps
// share K, a contiguous run of 32-wide steps each. Of a step a lane reads 16
// bytes of w's row g = lane / 4 and of row g + 8, from column 8 (lane % 4) on:
// the operands of two mma whose k is permuted, for x the same way.
// Shared memory: a ring of kStages steps for each warp (a lane reads back only
// what it copied itself: no barrier), the block's columns of x, and partial
// sums: [kGroup tiles][C * 8 slices] of one tile each, kept where the tile is
// finished: at block (tile in group) / OwnedTiles(C) of the cluster.
// Barriers: one of the block after x is in place; two of the cluster a group
// (partials written; partials read). Accumulation: float32 in the mma, then the
// slices in ascending order.
// Overlap: the ring is filled before the previous kernel's end is awaited, and
// the next kernel may start once the last copies are under way, so that memory
// does not idle between layers.
// Roofline: n k bytes of w over the copy bandwidth.
#include <algorithm>

#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/gemv_cuda.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kTile = 16;    // rows of w
constexpr int kStep = 32;    // columns of w: 1 KB of a tile
constexpr int kColumns = 8;  // rows of x in one mma
constexpr int kGroup = 4;    // tiles between two reductions
constexpr int kStepBytes = kTile * kStep * 2;
// Half of what an SM has, less what the system takes for a block: two kernels
// fit beside each other.
constexpr int kSharedBytes = 113 * 1024;

struct Shape {
  int64_t n;
  int64_t k;
  int m;
  int64_t tiles;
  int steps;  // of 32 columns
  int cluster;
  int num_clusters;
  int x_stride;  // bytes between rows of x in shared memory
};

// Tiles of a group that one block of the cluster finishes; of eight blocks the
// last four finish none.
__host__ __device__ constexpr int OwnedTiles(int cluster) {
  return cluster < kGroup ? kGroup / cluster : 1;
}

template <typename T>
__device__ void Multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                         uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

__device__ uint4 LoadShared(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// 16 bytes, of which all but the first `bytes` become zero.
__device__ void CopyAsync(uint32_t to, const void* from, int bytes) {
  asm volatile(
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to),
      "l"(from), "r"(bytes)
      : "memory");
}

__device__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kPending>
__device__ void AwaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ unsigned ClusterRank() {
#if __CUDA_ARCH__ >= 900
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
#else
  return 0;
#endif
}

// The barrier of the cluster in two halves; before Hopper, of the block.
__device__ void ClusterArrive() {
#if __CUDA_ARCH__ >= 900
  __syncwarp();  // .aligned
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

__device__ void ClusterWait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  __syncthreads();
#endif
}

__device__ void StoreToBlock(uint32_t address, unsigned rank,
                             const float (&v)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "st.shared::cluster.v4.f32 [there], {%2,%3,%4,%5};\n}" ::"r"(address),
      "r"(rank), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
      : "memory");
#else
  asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(address),
               "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
               : "memory");
#endif
}

// The weights of one lane, step by step over the tiles of its cluster.
template <typename T, int kStages>
class WeightRing {
 public:
  // Steps [first, end) of K; slots `ring` of shared memory, of this warp.
  __device__ WeightRing(const CudaMatrix<const T>& w, const Shape& shape,
                        int64_t tile, int first, int end, uint32_t ring)
      : w_(w),
        shape_(shape),
        tile_(tile),
        first_(first),
        end_(end),
        step_(first),
        ring_(ring + threadIdx.x % 32 * 16) {
    if (first_ == end_) tile_ = shape_.tiles;
    SetRows();
  }

  // Begins the copy of the next step, if there is one, into `slot`. With the
  // last one under way the next kernel may start.
  __device__ void Copy(int slot) {
    if (tile_ < shape_.tiles) {
      const int64_t column = int64_t{step_} * kStep + threadIdx.x % 4 * 8;
      const int64_t rest = 2 * (shape_.k - column);
      const int bytes = rest >= 16 ? 16 : rest > 0 ? static_cast<int>(rest) : 0;
      const int64_t at = bytes > 0 ? column : 0;
      CopyAsync(ring_ + slot * kStepBytes, low_ + at, bytes);
      CopyAsync(ring_ + slot * kStepBytes + 512, high_ + at, bytes);
      if (++step_ == end_) {
        step_ = first_;
        tile_ += shape_.num_clusters;
        SetRows();
        if (tile_ >= shape_.tiles) LetNextBegin();
      }
    }
    CommitCopies();
  }

  // The fragments of `slot`, whose copy must be complete: one of mma 0, one of
  // mma 1.
  __device__ void Load(int slot, uint32_t (&a)[2][4]) const {
    const uint4 low = LoadShared(ring_ + slot * kStepBytes);
    const uint4 high = LoadShared(ring_ + slot * kStepBytes + 512);
    a[0][0] = low.x, a[0][1] = high.x, a[0][2] = low.y, a[0][3] = high.y;
    a[1][0] = low.z, a[1][1] = high.z, a[1][2] = low.w, a[1][3] = high.w;
  }

 private:
  // Rows beyond n are read from the last one and never stored.
  __device__ void SetRows() {
    const int64_t row = tile_ * kTile + threadIdx.x % 32 / 4;
    low_ = w_.row(min(row, shape_.n - 1));
    high_ = w_.row(min(row + 8, shape_.n - 1));
  }

  const CudaMatrix<const T>& w_;
  const Shape& shape_;
  int64_t tile_;
  int first_;
  int end_;
  int step_;
  uint32_t ring_;
  const T* low_;
  const T* high_;
};

// Columns [32 first, 32 end) of x's m rows into shared memory; zeros beyond K.
// Four loads of a thread are under way at once.
template <typename T>
__device__ void FillX(const CudaMatrix<const T>& x, const Shape& shape,
                      int first, int end, std::byte* shared) {
  constexpr int kBatch = 4;
  const int chunks = (end - first) * (kStep / 8);
  const int count = chunks * shape.m;
  for (int base = threadIdx.x; base < count; base += kBatch * kThreads) {
    uint4 v[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int i = base + j * kThreads;
      const int64_t column = int64_t{first} * kStep + i % chunks * 8;
      v[j] = make_uint4(0, 0, 0, 0);
      if (i < count && column < shape.k) {
        v[j] = *reinterpret_cast<const uint4*>(x.row(i / chunks) + column);
      }
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int i = base + j * kThreads;
      if (i >= count) break;
      *reinterpret_cast<uint4*>(shared + i / chunks * shape.x_stride +
                                i % chunks * 16) = v[j];
    }
  }
}

// Adds up the slices of this block's tiles of a group and stores them.
template <typename Y, int kTilesM>
__device__ void Finish(const Shape& shape, int64_t first_tile, int owned,
                       unsigned rank, const float* partials, const float* bias,
                       const CudaMatrix<const Y>& residual,
                       const CudaMatrix<Y>& y) {
  constexpr int kOutputs = kTile * kColumns * kTilesM;
  const int slices = shape.cluster * kWarps;
  for (int i = threadIdx.x; i < owned * kOutputs; i += kThreads) {
    const int at = i % kOutputs;
    const int in_group = static_cast<int>(rank) * owned + i / kOutputs;
    if (in_group >= kGroup) break;
    const int64_t tile = first_tile + int64_t{in_group} * shape.num_clusters;
    // Where the mma leaves element `at % 128` (four a lane).
    const int lane = at % 128 / 4;
    const int64_t n = tile * kTile + lane / 4 + 8 * (at / 2 % 2);
    const int m = at / 128 * kColumns + lane % 4 * 2 + at % 2;
    if (tile >= shape.tiles || n >= shape.n || m >= shape.m) continue;
    const float* slice = partials + i / kOutputs * slices * kOutputs + at;
    float sum = 0.0f;
    for (int s = 0; s < slices; ++s) sum += slice[s * kOutputs];
    if (bias != nullptr) sum += bias[n];
    if (residual.data != nullptr) sum += ToFloat(residual.row(m)[n]);
    y.row(m)[n] = FromFloat<Y>(sum);
  }
}

template <typename T, typename Y, int kTilesM, int kStages>
__global__ void __launch_bounds__(kThreads, 2)
    TensorGemv(const __grid_constant__ CudaMatrix<const T> x,
               const __grid_constant__ CudaMatrix<const T> w, const float* bias,
               const __grid_constant__ CudaMatrix<const Y> residual,
               const __grid_constant__ CudaMatrix<Y> y,
               const __grid_constant__ Shape shape) {
  extern __shared__ __align__(128) std::byte shared[];
  constexpr int kPartial = kTile * kColumns * kTilesM;  // floats
  std::byte* const x_shared = shared + kWarps * kStages * kStepBytes;
  auto* const partials =
      reinterpret_cast<float*>(x_shared + shape.m * shape.x_stride);
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const unsigned rank = ClusterRank();
  const int slices = shape.cluster * kWarps;
  const int slice = static_cast<int>(rank) * kWarps + warp;
  const int block_first =
      static_cast<int>(rank) * kWarps * shape.steps / slices;
  const int block_end =
      static_cast<int>(rank + 1) * kWarps * shape.steps / slices;
  const int first = slice * shape.steps / slices;
  const int end = (slice + 1) * shape.steps / slices;
  const int64_t cluster = blockIdx.x / shape.cluster;

  ClusterArrive();  // that this block runs: others may write into it
  const auto shared_address =
      static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  WeightRing<T, kStages> ring(w, shape, cluster, first, end,
                              shared_address + warp * kStages * kStepBytes);
  for (int slot = 0; slot < kStages; ++slot) ring.Copy(slot);
  WaitForPrevious();
  FillX(x, shape, block_first, block_end, x_shared);
  __syncthreads();

  const uint32_t x_address = shared_address + kWarps * kStages * kStepBytes +
                             lane / 4 * shape.x_stride + lane % 4 * 16 -
                             block_first * kStep * 2;
  const int owned = OwnedTiles(shape.cluster);
  int slot = 0;
  const int64_t group_stride = int64_t{kGroup} * shape.num_clusters;
  for (int64_t group = cluster; group < shape.tiles; group += group_stride) {
    float sums[kGroup][kTilesM][4] = {};
#pragma unroll
    for (int t = 0; t < kGroup; ++t) {
      if (group + int64_t{t} * shape.num_clusters >= shape.tiles) break;
      for (int step = first; step < end; ++step) {
        AwaitCopies<kStages - 1>();
        uint32_t a[2][4];
        ring.Load(slot, a);
#pragma unroll
        for (int c = 0; c < kTilesM; ++c) {
          uint4 b = make_uint4(0, 0, 0, 0);
          if (c * kColumns + lane / 4 < shape.m) {
            b = LoadShared(x_address + c * kColumns * shape.x_stride +
                           step * kStep * 2);
          }
          Multiply<T>(sums[t][c], a[0], b.x, b.y);
          Multiply<T>(sums[t][c], a[1], b.z, b.w);
        }
        ring.Copy(slot);
        if (++slot == kStages) slot = 0;
      }
    }
    ClusterWait();  // the partials of the group before have been read
#pragma unroll
    for (int t = 0; t < kGroup; ++t) {
      const int at = (t % owned * slices + slice) * kPartial;
#pragma unroll
      for (int c = 0; c < kTilesM; ++c) {
        StoreToBlock(static_cast<uint32_t>(__cvta_generic_to_shared(
                         partials + at + c * 128 + lane * 4)),
                     t / owned, sums[t][c]);
      }
    }
    ClusterArrive();
    ClusterWait();  // the partials of this group are written
    Finish<Y, kTilesM>(shape, group, owned, rank, partials, bias, residual, y);
    ClusterArrive();
  }
  ClusterWait();
}

// What a launch takes of shared memory.
size_t SharedBytes(const Shape& shape, int stages) {
  const int tiles_m = shape.m > kColumns ? 2 : 1;
  return static_cast<size_t>(kWarps * stages * kStepBytes) +
         static_cast<size_t>(shape.m) * static_cast<size_t>(shape.x_stride) +
         static_cast<size_t>(OwnedTiles(shape.cluster) * shape.cluster *
                             kWarps * kTile * kColumns * tiles_m) *
             sizeof(float);
}

// What a block may have at all.
size_t MostSharedBytes(int sm) { return (sm >= 90 ? 227 : 99) * 1024; }

// Bytes between rows of x in shared memory: 64 more than a multiple of 128, so
// that the eight lanes of a phase, two rows, meet all banks once.
int XStride(int steps, int cluster) {
  const int most = (steps + cluster - 1) / cluster + 1;  // uneven shares
  return (most * kStep * 2 + 127) / 128 * 128 + 64;
}

Shape ShapeOf(const GemmDesc& desc, int64_t m, const GemvPlan& plan) {
  Shape shape;
  shape.n = desc.n;
  shape.k = desc.k;
  shape.m = static_cast<int>(m);
  shape.tiles = (desc.n + kTile - 1) / kTile;
  shape.steps = static_cast<int>((desc.k + kStep - 1) / kStep);
  shape.cluster = plan.cluster;
  shape.num_clusters = plan.num_clusters;
  shape.x_stride = XStride(shape.steps, plan.cluster);
  return shape;
}

constexpr int kLeastStages = 5;

// Rows of x that fit; 0 where not even one does.
int64_t RowsPerLaunch(const GemmDesc& desc, const GemvPlan& plan, int sm) {
  for (const int m : {kGemvRows, kColumns, 4, 2, 1}) {
    if (SharedBytes(ShapeOf(desc, m, plan), kLeastStages) <=
        MostSharedBytes(sm)) {
      return m;
    }
  }
  return 0;
}

template <typename T, typename Y, int kTilesM, int kStages>
absl::Status Launch(const GemmParams& params, const Shape& shape,
                    CudaStream& stream) {
  CudaGrid grid;
  grid.blocks = int64_t{shape.num_clusters} * shape.cluster;
  grid.threads = kThreads;
  grid.shared_bytes = SharedBytes(shape, kStages);
  grid.cluster = shape.cluster;
  return LaunchCuda(
      "gemv", stream, grid, TensorGemv<T, Y, kTilesM, kStages>,
      CudaMatrix<const T>(params.x), CudaMatrix<const T>(params.w), params.bias,
      CudaMatrix<const Y>(params.residual), CudaMatrix<Y>(params.y), shape);
}

// As deep a ring as leaves room for another block, else as there is room for.
template <typename T, typename Y, int kTilesM>
absl::Status LaunchDeepest(const GemmParams& params, const Shape& shape,
                           CudaStream& stream) {
  if (SharedBytes(shape, 10) <= kSharedBytes) {
    return Launch<T, Y, kTilesM, 10>(params, shape, stream);
  }
  if (SharedBytes(shape, 8) <= kSharedBytes) {
    return Launch<T, Y, kTilesM, 8>(params, shape, stream);
  }
  return Launch<T, Y, kTilesM, kLeastStages>(params, shape, stream);
}

template <typename T>
absl::Status LaunchTyped(const GemmDesc& desc, const GemmParams& params,
                         const Shape& shape, CudaStream& stream) {
  const bool wide = shape.m > kColumns;
  if (desc.output == DType::kF32) {
    return wide ? LaunchDeepest<T, float, 2>(params, shape, stream)
                : LaunchDeepest<T, float, 1>(params, shape, stream);
  }
  return wide ? LaunchDeepest<T, T, 2>(params, shape, stream)
              : LaunchDeepest<T, T, 1>(params, shape, stream);
}

}  // namespace

GemvPlan PlanGemv(int64_t n, int64_t k, int num_sms, int sm) {
  // Eight rows of x in about 32 KB, which leaves the ring most of the room.
  constexpr int64_t kColumnsPerBlock = 2112;
  GemvPlan plan;
  while (sm >= 90 && plan.cluster < 8 && k > kColumnsPerBlock * plan.cluster) {
    plan.cluster *= 2;
  }
  const int64_t tiles = (n + kTile - 1) / kTile;
  const int64_t most = std::max(1, num_sms / plan.cluster);
  plan.num_clusters = static_cast<int>(std::min(most, tiles));
  return plan;
}

bool IsTensorGemv(const GemmDesc& desc, const GemmParams& params,
                  const GemvPlan& plan, int sm) {
  return desc.weight != DType::kF32 && desc.activation == desc.weight &&
         (desc.output == DType::kF32 || desc.output == desc.weight) &&
         IsCudaVector(desc.k, {&params.x, &params.w}) &&
         RowsPerLaunch(desc, plan, sm) > 0;
}

absl::Status RunTensorGemv(const GemmDesc& desc, const GemmParams& params,
                           const GemvPlan& plan, CudaStream& stream) {
  const int64_t rows = params.x.rows();
  const int64_t most = RowsPerLaunch(desc, plan, stream.sm());
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t m = std::min(most, rows - first);
    GemmParams part = params;
    part.x = params.x.RowSlice(first, m);
    part.y = params.y.RowSlice(first, m);
    if (!params.residual.empty()) {
      part.residual = params.residual.RowSlice(first, m);
    }
    const Shape shape = ShapeOf(desc, m, plan);
    INLAY_RETURN_IF_ERROR(
        desc.weight == DType::kF16
            ? LaunchTyped<__half>(desc, part, shape, stream)
            : LaunchTyped<__nv_bfloat16>(desc, part, shape, stream));
  }
  return absl::OkStatus();
}

}  // namespace inlay
