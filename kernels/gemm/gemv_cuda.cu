// gemm for few rows of x, on devices before Hopper (gemv_sm90.cu is for that).
//
// Mapping: a block takes every gridDim-th tile of 16 rows of w; its warps share
// K, a contiguous run of 32-wide steps each.
// Shared memory: a ring of kStages steps for each warp, of which a lane reads
// back only what it copied itself (no barrier); all of x; partial sums
// [kGroup tiles][kWarps slices]. Barriers: of the block, after x is in place
// and two a group of tiles. Accumulation: float32 in the mma, then the slices
// in ascending order. Roofline: n k elements of w over the copy bandwidth.
#include <algorithm>

#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/gemv_cuda.h"
#include "kernels/gemm/gemv_mma.cuh"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kStep = 32;  // columns of w
constexpr int kGroup = 4;  // tiles between two reductions
constexpr int kStages = 5;
constexpr int kStepBytes = kGemvTile * kStep * 2;
constexpr int kPartial = kGemvTile * 8;  // floats
constexpr int kRingBytes = kWarps * kStages * kStepBytes;
constexpr int kPartialBytes = kGroup * kWarps * kPartial * 4;

struct Shape {
  int64_t n;
  int64_t k;
  int m;
  int tiles;
  int steps;
  int x_stride;  // bytes between rows of x in shared memory
};

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

// The weights of one lane, step by step over the tiles of its block.
template <typename T>
class WeightRing {
 public:
  // Steps [first, end) of K; `ring` is this warp's shared memory.
  __device__ WeightRing(const CudaMatrix<const T>& w, const Shape& shape,
                        int first, int end, uint32_t ring)
      : w_(w),
        shape_(shape),
        tile_(first < end ? static_cast<int>(blockIdx.x) : shape.tiles),
        first_(first),
        end_(end),
        step_(first),
        ring_(ring + threadIdx.x % 32 * 16) {}

  // Begins the copy of the next step, if there is one, into `slot`.
  __device__ void Copy(int slot) {
    if (tile_ < shape_.tiles) {
      // Rows beyond n are read from the last one and never stored.
      const int64_t row = int64_t{tile_} * kGemvTile + threadIdx.x % 32 / 4;
      const int64_t column = int64_t{step_} * kStep + threadIdx.x % 4 * 8;
      const int bytes = column < shape_.k ? 16 : 0;
      const int64_t at = bytes > 0 ? column : 0;
      CopyAsync(ring_ + slot * kStepBytes, w_.row(min(row, shape_.n - 1)) + at,
                bytes);
      CopyAsync(ring_ + slot * kStepBytes + 512,
                w_.row(min(row + 8, shape_.n - 1)) + at, bytes);
      if (++step_ == end_) {
        step_ = first_;
        tile_ += gridDim.x;
      }
    }
    CommitCopies();
  }

  // The fragments of `slot`, whose copy must be complete.
  __device__ void Load(int slot, uint32_t (&a)[2][4]) const {
    const uint32_t at = ring_ + slot * kStepBytes;
    LoadGemvTile(at, at + 512, a);
  }

 private:
  const CudaMatrix<const T>& w_;
  const Shape& shape_;
  int tile_;
  int first_;
  int end_;
  int step_;
  uint32_t ring_;
};

// x's m rows into shared memory; zeros beyond K.
template <typename T>
__device__ void FillX(const CudaMatrix<const T>& x, const Shape& shape,
                      std::byte* shared) {
  const int pieces = shape.steps * (kStep / 8);
  for (int i = threadIdx.x; i < pieces * shape.m; i += kThreads) {
    const int row = i / pieces;
    const int64_t column = i % pieces * 8;
    uint4 v = make_uint4(0, 0, 0, 0);
    if (column < shape.k) {
      v = *reinterpret_cast<const uint4*>(x.row(row) + column);
    }
    *reinterpret_cast<uint4*>(shared + row * shape.x_stride + column * 2) = v;
  }
}

// Adds up the slices of a group's tiles and stores them.
template <typename T, typename Y>
__device__ void Finish(const Shape& shape, int first_tile,
                       const float* partials, const float* bias,
                       const CudaMatrix<const Y>& residual,
                       const CudaMatrix<Y>& y) {
  for (int i = threadIdx.x; i < kGroup * kPartial; i += kThreads) {
    const int at = i % kPartial;
    const int tile = first_tile + i / kPartial * static_cast<int>(gridDim.x);
    // Where the mma leaves element `at`, four a lane.
    const int64_t n = int64_t{tile} * kGemvTile + at / 16 + 8 * (at / 2 % 2);
    const int m = at / 4 % 4 * 2 + at % 2;
    if (tile >= shape.tiles || n >= shape.n || m >= shape.m) continue;
    const float* slice = partials + i / kPartial * kWarps * kPartial + at;
    float sum = 0.0f;
    for (int s = 0; s < kWarps; ++s) sum += slice[s * kPartial];
    if (bias != nullptr) sum += bias[n];
    if (residual.data != nullptr) sum += ToFloat(residual.row(m)[n]);
    y.row(m)[n] = FromFloat<Y>(sum);
  }
}

template <typename T, typename Y>
__global__ void __launch_bounds__(kThreads)
    RingGemv(CudaMatrix<const T> x, CudaMatrix<const T> w, const float* bias,
             CudaMatrix<const Y> residual, CudaMatrix<Y> y, Shape shape) {
  extern __shared__ __align__(128) std::byte shared[];
  std::byte* const x_shared = shared + kRingBytes;
  auto* const partials =
      reinterpret_cast<float*>(x_shared + shape.m * shape.x_stride);
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int first = warp * shape.steps / kWarps;
  const int end = (warp + 1) * shape.steps / kWarps;
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const uint32_t x_address =
      address + kRingBytes + lane / 4 * shape.x_stride + lane % 4 * 16;
  WeightRing<T> ring(w, shape, first, end,
                     address + warp * kStages * kStepBytes);
  for (int slot = 0; slot < kStages; ++slot) ring.Copy(slot);
  LetNextBegin();
  WaitForPrevious();
  FillX(x, shape, x_shared);
  __syncthreads();
  int slot = 0;
  const int stride = static_cast<int>(gridDim.x);
  for (int group = static_cast<int>(blockIdx.x); group < shape.tiles;
       group += kGroup * stride) {
    float sums[kGroup][4] = {};
#pragma unroll
    for (int t = 0; t < kGroup; ++t) {
      if (group + t * stride >= shape.tiles) break;
      for (int step = first; step < end; ++step) {
        AwaitCopies<kStages - 1>();
        uint32_t a[2][4];
        ring.Load(slot, a);
        uint4 b = make_uint4(0, 0, 0, 0);
        if (lane / 4 < shape.m) b = LoadShared16(x_address + step * kStep * 2);
        MultiplyTile<T>(sums[t], a[0], b.x, b.y);
        MultiplyTile<T>(sums[t], a[1], b.z, b.w);
        // Only now, when the registers have what was there.
        ring.Copy(slot);
        if (++slot == kStages) slot = 0;
      }
    }
#pragma unroll
    for (int t = 0; t < kGroup; ++t) {
      *reinterpret_cast<float4*>(partials + (t * kWarps + warp) * kPartial +
                                 lane * 4) =
          make_float4(sums[t][0], sums[t][1], sums[t][2], sums[t][3]);
    }
    __syncthreads();
    Finish<T, Y>(shape, group, partials, bias, residual, y);
    __syncthreads();
  }
}

// 64 bytes more than a multiple of 128, so that the eight lanes of a phase, two
// rows, meet all banks once.
int XStride(int steps) { return (steps * kStep * 2 + 127) / 128 * 128 + 64; }

template <typename T, typename Y>
absl::Status Launch(const GemmDesc& desc, const GemmParams& params,
                    CudaStream& stream) {
  Shape shape;
  shape.n = desc.n;
  shape.k = desc.k;
  shape.m = static_cast<int>(params.x.rows());
  shape.tiles = static_cast<int>((desc.n + kGemvTile - 1) / kGemvTile);
  shape.steps = static_cast<int>((desc.k + kStep - 1) / kStep);
  shape.x_stride = XStride(shape.steps);
  CudaGrid grid;
  grid.blocks = std::min(shape.tiles, stream.num_sms());
  grid.threads = kThreads;
  grid.shared_bytes = RingGemvSharedBytes(desc.k, shape.m);
  return LaunchCuda(
      "gemv", stream, grid, RingGemv<T, Y>, CudaMatrix<const T>(params.x),
      CudaMatrix<const T>(params.w), params.bias,
      CudaMatrix<const Y>(params.residual), CudaMatrix<Y>(params.y), shape);
}

template <typename T>
absl::Status LaunchTyped(const GemmDesc& desc, const GemmParams& params,
                         CudaStream& stream) {
  return desc.output == DType::kF32 ? Launch<T, float>(desc, params, stream)
                                    : Launch<T, T>(desc, params, stream);
}

}  // namespace

size_t RingGemvSharedBytes(int64_t k, int64_t m) {
  const int stride = XStride(static_cast<int>((k + kStep - 1) / kStep));
  return kRingBytes + kPartialBytes +
         static_cast<size_t>(m) * static_cast<size_t>(stride);
}

absl::Status RunRingGemv(const GemmDesc& desc, const GemmParams& params,
                         CudaStream& stream) {
  return desc.weight == DType::kF16
             ? LaunchTyped<__half>(desc, params, stream)
             : LaunchTyped<__nv_bfloat16>(desc, params, stream);
}

}  // namespace inlay
