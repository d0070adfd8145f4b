// expert_linear over weights of 8 bits and x that is codes of 8 bits too (e4m3
// with e4m3, int8 with int8; gemm/FP8.md) on Hopper, for many slots: codes are
// multiplied as they are. x's rows are in the order of experts
// (expert_gather.cu), and 16 columns of it where a tile of w has them
// (gemm/quantised/layout.h): wgmma adds up columns in any order, if it is both
// operands'.
//
// Mapping: a job is 128 rows of an expert's w times up to 192 of its rows of x;
// blocks, one a multiprocessor, take jobs in turn: those of the same rows of x
// are neighbours, and then those of the same expert. Two warpgroups multiply,
// 64 rows of w each, y^T = w x^T: w [64, 32] from registers, x from shared
// memory, as many columns as x has rows (in steps of 32). A warp of a third
// warpgroup copies, and tells the others which job a stage belongs to.
//
// Shared memory: barriers and jobs; rings of x, of weights and of x's scales, a
// unit of 128 columns a stage; for each warpgroup [32 rows of x][64 rows of w]
// of sums on their way out, and slots and scales of a job's rows.
//
// Barriers (mbarriers): full and freed, a stage. Named barriers 1 and 2: a
// warpgroup that multiplies.
//
// Sums: K ascending. e4m3: a unit by wgmma, which keeps some 14 bits, then,
// times scales, in float32. int8: exactly, scales last. While one warpgroup
// loads, scales and adds, the tensor cores have the other's unit.
//
// Roofline: packed bytes over the copy bandwidth up to some 200 slots an
// expert, then the rate of the tensor cores.
#include <cuda_fp16.h>

#include <type_traits>

#include "kernels/attention/sm90_ops.h"
#include "kernels/attention/wgmma_sm90.h"
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/quantised/wgmma_codes_sm90.cuh"
#include "kernels/moe/expert_codes_sm90.cuh"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kThreads = 3 * 128;
// A block begins with 168 for each of its 12 warps.
constexpr int kFewRegisters = 40;
constexpr int kManyRegisters = 232;
static_assert(2 * kManyRegisters + kFewRegisters <= 3 * 168);

// The bytes of a row's codes of 16 columns, as a tile has them and as x has
// (expert_gather.cu): columns 2 t, 2 t + 1, 8 + 2 t, 9 + 2 t of lane t.
__device__ void Arrange(uint32_t word0, uint32_t word1, uint32_t& upper,
                        uint32_t& lower) {
  upper = __byte_perm(word0, word1, 0x6420);
  lower = __byte_perm(word0, word1, 0x7531);
}

template <int kCount>
__device__ void Pin(float (&d)[kCount]) {
  sm90::PinRegisters(d);
}
template <int kCount>
__device__ void Pin(int32_t (&d)[kCount]) {
#pragma unroll
  for (int32_t& x : d) asm volatile("" : "+r"(x)::"memory");
}

// A warp that multiplies: a tile of each job.
template <class Codes, bool kGroups>
class CodesConsumer {
  using At = Layout<Codes, kGroups>;
  using Sum = typename Codes::Sum;
  static constexpr bool kFloats = std::is_same_v<Sum, float>;

 public:
  __device__ CodesConsumer(const ExpertCodesShape& shape, uint8_t* shared,
                           uint32_t base)
      : shape_(shape),
        shared_(shared),
        base_(base),
        out_(reinterpret_cast<float*>(shared + At::kOut +
                                      threadIdx.x / 128 * kOutBytes)),
        targets_(reinterpret_cast<Target*>(shared + At::kTargets +
                                           threadIdx.x / 128 * kTargetBytes)) {}

  __device__ void Run() {
#pragma unroll 1
    for (;;) {
      Await(base_ + kFull + 8 * stage_.index, stage_.parity);
      const Job job =
          reinterpret_cast<const Job*>(shared_ + kJobs)[stage_.index];
      switch ((job.rows + kStep - 1) / kStep) {
        case 0:
          return;
        case 1:
          RunJob<32>(job);
          break;
        case 2:
          RunJob<64>(job);
          break;
        case 3:
          RunJob<96>(job);
          break;
        case 4:
          RunJob<128>(job);
          break;
        case 5:
          RunJob<160>(job);
          break;
        default:
          RunJob<192>(job);
      }
    }
  }

 private:
  template <int kColumns>
  __device__ void RunJob(const Job& job) {
    // Asked for before they are wanted.
    constexpr int kTargets = (kColumns + 127) / 128;
    Target targets[kTargets];
#pragma unroll
    for (int i = 0; i < kTargets; ++i) {
      const int row = i * 128 + static_cast<int>(threadIdx.x) % 128;
      targets[i] = {};
      if (row >= job.rows) continue;
      targets[i].slot = shape_.slots[job.first + row];
      if (!kGroups) targets[i].scale = shape_.x_scales[job.row + row];
    }
    float2 factors = FactorsOf(job);
    float2 scale = {};
    if constexpr (kFloats) {
      float sums[kColumns / 2] = {};
#pragma unroll 1
      for (int unit = 0; unit < shape_.units; ++unit) {
        float products[kColumns / 2];
        Multiply<kColumns>(0, products, scale);
        if constexpr (!kGroups) Free();
        Add<kColumns>(products, scale, sums);
        if constexpr (kGroups) Free();
        stage_.Next();
      }
      Finish<kColumns>(job, targets, factors, sums);
    } else {
      Sum products[kColumns / 2] = {};
#pragma unroll 1
      for (int unit = 0; unit < shape_.units; ++unit) {
        Multiply<kColumns>(1, products, scale);
        Free();
        stage_.Next();
      }
      factors.x *= scale.x;
      factors.y *= scale.y;
      Finish<kColumns>(job, targets, factors, products);
    }
  }

  // Of rows lane / 4 and 8 further of the warp's tile.
  __device__ float2 FactorsOf(const Job& job) const {
    const int tile =
        min(job.n / kQuantRows + static_cast<int>(threadIdx.x) / 32,
            shape_.expert_tiles - 1);
    const std::byte* matrix =
        shape_.w + (shape_.table != nullptr
                        ? shape_.table[job.expert]
                        : job.expert * shape_.expert_tiles * shape_.tile_bytes);
    const auto* head =
        reinterpret_cast<const float*>(matrix + tile * shape_.tile_bytes) +
        threadIdx.x % 32 / 4;
    return make_float2(head[0], head[8]);
  }

  // The unit that is next in the rings; `scale` is that of the two rows.
  template <int kColumns>
  __device__ void Multiply(int accumulate, Sum (&products)[kColumns / 2],
                           float2& scale) const {
    const int lane = threadIdx.x % 32;
    Await(base_ + kFull + 8 * stage_.index, stage_.parity);
    const uint8_t* codes = shared_ + At::kWRing + stage_.index * At::kWStage +
                           threadIdx.x / 32 * Codes::kUnitBytes;
    uint32_t a[4][4];
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const uint4 v =
          *reinterpret_cast<const uint4*>(codes + step * 512 + lane * 16);
      Arrange(v.x, v.y, a[step][0], a[step][1]);
      Arrange(v.z, v.w, a[step][2], a[step][3]);
    }
    scale = __half22float2(*reinterpret_cast<const __half2*>(
        codes + kQuantRows * kQuantColumns + lane / 4 * Codes::kScaleBytes));
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
    }
    Pin(products);
    sm90::WgmmaFence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      WgmmaCodes<Sum, kColumns>::Issue(
          products, a[step],
          sm90::MatrixDescriptor(base_ + kXRing + stage_.index * kXStage +
                                 step * 32),
          step == 0 ? accumulate : 1);
    }
    sm90::WgmmaCommit();
    sm90::WgmmaWait<0>();
    Pin(products);
  }

  // The stage was used.
  __device__ void Free() const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) Arrive(base_ + kFreed + 8 * stage_.index);
  }

  template <int kColumns>
  __device__ void Add(const float (&products)[kColumns / 2], float2 scale,
                      float (&sums)[kColumns / 2]) const {
    const auto* x_scales = reinterpret_cast<const float2*>(
        shared_ + At::kScaleRing + stage_.index * At::kScaleStage);
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      float of_x[2] = {1.0f, 1.0f};
      if constexpr (kGroups) {
        const float2 two = x_scales[j * 4 + threadIdx.x % 4];
        of_x[0] = two.x, of_x[1] = two.y;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float of_w = i < 2 ? scale.x : scale.y;
        sums[4 * j + i] =
            fmaf(products[4 * j + i], kGroups ? of_w * of_x[i % 2] : of_w,
                 sums[4 * j + i]);
      }
    }
  }

  __device__ static void SyncWarpgroup() {
    sm90::SyncNamed(1 + static_cast<int>(threadIdx.x) / 128, 128);
  }

  template <int kColumns>
  __device__ void Finish(const Job& job,
                         const Target (&targets)[(kColumns + 127) / 128],
                         float2 factors, const Sum (&sums)[kColumns / 2]) {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    const int lane = thread % 32;
    float* to =
        out_ + lane % 4 * 2 * kOutStride + thread / 32 * kQuantRows + lane / 4;
#pragma unroll
    for (int c = 0; c < kColumns / kStep; ++c) {
      SyncWarpgroup();  // what was there has been read
      if (c == 0) {
#pragma unroll
        for (int i = 0; i < (kColumns + 127) / 128; ++i) {
          const int row = i * 128 + thread;
          if (row < kMostColumns) targets_[row] = targets[i];
        }
      }
#pragma unroll
      for (int j = 0; j < kStep / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          to[(8 * j + i % 2) * kOutStride + i / 2 * 8] =
              static_cast<float>(sums[(c * kStep / 8 + j) * 4 + i]) *
              (i < 2 ? factors.x : factors.y);
        }
      }
      SyncWarpgroup();
      StoreRows(job, c * kStep);
    }
  }

  // Half a warp a row of x, four rows of w a lane. (A quarter of that of a row,
  // each warp by itself without barriers: slower, README.md.)
  __device__ void StoreRows(const Job& job, int first) const {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    const int column = thread % 16 * 4;
    const int64_t n =
        job.n + static_cast<int>(threadIdx.x) / 128 * kGroupRows + column;
    if (n >= shape_.n) return;
    float bias[4] = {};
    if (shape_.bias != nullptr) {
      const float* from = shape_.bias + job.expert * shape_.n + n;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (n + i < shape_.n) bias[i] = from[i];
      }
    }
#pragma unroll
    for (int i = 0; i < kStep / 8; ++i) {
      const int row = i * 8 + thread / 16;
      if (first + row >= job.rows) return;
      const Target target = targets_[first + row];
      const auto v =
          *reinterpret_cast<const float4*>(out_ + row * kOutStride + column);
      const float by = kGroups ? 1.0f : target.scale;
      const float values[4] = {fmaf(v.x, by, bias[0]), fmaf(v.y, by, bias[1]),
                               fmaf(v.z, by, bias[2]), fmaf(v.w, by, bias[3])};
      if (shape_.y.dtype == DType::kF32) {
        StoreFour<float>(target.slot, n, values);
      } else if (shape_.y.dtype == DType::kF16) {
        StoreFour<__half>(target.slot, n, values);
      } else {
        StoreFour<__nv_bfloat16>(target.slot, n, values);
      }
    }
  }

  template <typename T>
  __device__ void StoreFour(int m, int64_t n, const float (&values)[4]) const {
    T* to = CudaMatrix<T>(shape_.y).row(m) + n;
    if (shape_.vectors && n + 4 <= shape_.n) {
      if constexpr (sizeof(T) == 4) {
        StoreFloats<4>(to, values);
      } else {
        *reinterpret_cast<uint2*>(to) =
            make_uint2(NarrowPair<T>(values[0], values[1]),
                       NarrowPair<T>(values[2], values[3]));
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (n + i < shape_.n) to[i] = FromFloat<T>(values[i]);
    }
  }

  const ExpertCodesShape& shape_;
  uint8_t* shared_;
  uint32_t base_;
  float* out_;
  Target* targets_;
  Stage stage_;
};

template <class Codes, bool kGroups>
__global__ void __launch_bounds__(kThreads, 1)
    ExpertCodes(const __grid_constant__ CUtensorMap x,
                const __grid_constant__ CUtensorMap w,
                const __grid_constant__ ExpertCodesShape shape) {
  extern __shared__ __align__(1024) uint8_t shared[];
  LetNextBegin();
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (int s = 0; s < kStages; ++s) {
      InitBarrier(base + kFull + 8 * s, 1);
      InitBarrier(base + kFreed + 8 * s, kTiles);
    }
    sm90::FenceBarrierInit();
  }
  __syncthreads();
  // Which rows there are is the result of the work before.
  WaitForPrevious();
  if (threadIdx.x >= 256) {
    sm90::LowerRegisters<kFewRegisters>();
    if (threadIdx.x < 256 + 32) {
      CodesProducer<Codes, kGroups>(shape, x, w, shared, base).Run();
    }
    return;
  }
  sm90::RaiseRegisters<kManyRegisters>();
  CodesConsumer<Codes, kGroups>(shape, shared, base).Run();
}

template <class Codes, bool kGroups>
absl::Status Launch(const ExpertCodesMaps& maps, const ExpertCodesShape& shape,
                    int64_t blocks, CudaStream& stream) {
  CudaGrid grid;
  grid.blocks = blocks;
  grid.threads = kThreads;
  grid.shared_bytes = Layout<Codes, kGroups>::kBytes;
  return LaunchCuda("expert_linear of codes", stream, grid,
                    ExpertCodes<Codes, kGroups>, maps.x, maps.w, shape);
}

}  // namespace

absl::Status LaunchExpertCodes(const ExpertCodesMaps& maps, QuantCodes codes,
                               bool groups, const ExpertCodesShape& shape,
                               int64_t blocks, CudaStream& stream) {
  if (codes == QuantCodes::kInt8) {
    return Launch<Int8Codes, false>(maps, shape, blocks, stream);
  }
  return groups ? Launch<E4M3Codes, true>(maps, shape, blocks, stream)
                : Launch<E4M3Codes, false>(maps, shape, blocks, stream);
}

}  // namespace inlay
