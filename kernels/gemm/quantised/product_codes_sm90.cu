// gemm over weights of 8 bits and x that is codes of 8 bits too (e4m3 with
// e4m3, int8 with int8; FP8.md) on Hopper: codes are multiplied as they are, so
// that nothing is decoded.
//
// Mapping, shared memory, barriers, order of sums: wide_block_sm90.cuh, with 8
// warps that multiply, since e4m3 takes two sets of accumulators: a unit of 128
// columns is added up by wgmma, and that, times its scales, to float32 sums.
// While one warpgroup does so the tensor cores have the other's. int8 is added
// up exactly; its one scale a row comes last.
//
// A tile has pairs of columns where mma.m16n8k16 wants them (layout.h); wgmma
// over codes wants four columns side by side in a lane: two exchanges between
// lanes and two permutations of bytes for each 16 columns.
//
// Roofline: packed bytes over the copy bandwidth up to some 128 rows, then the
// rate of the tensor cores.
#include <cuda_fp16.h>

#include <type_traits>

#include "kernels/attention/sm90_ops.h"
#include "kernels/attention/wgmma_sm90.h"
#include "kernels/gemm/quantised/wgmma_codes_sm90.cuh"
#include "kernels/gemm/quantised/wide_block_sm90.cuh"

namespace inlay {
namespace {

constexpr int kTiles = kWideCodesTiles;
constexpr int kThreads = WideBlock<kTiles>::kThreads;
constexpr unsigned kAllLanes = 0xffffffffu;
// A block begins with 168 for each of its 12 warps.
constexpr int kFewRegisters = 40;
constexpr int kManyRegisters = 232;
static_assert(kTiles * kManyRegisters + 4 * kFewRegisters <=
              (kTiles + 4) * 168);

// How kinds of codes are added up.
struct E4M3Codes {
  using Sum = float;
  static constexpr int kScaleBytes = 4;  // of two rows
};
struct Int8Codes {
  using Sum = int32_t;
  static constexpr int kScaleBytes = 8;  // minima too, which are 0
};

template <int kCount>
__device__ void PinRegisters(float (&d)[kCount]) {
  sm90::PinRegisters(d);
}
template <int kCount>
__device__ void PinRegisters(int32_t (&d)[kCount]) {
#pragma unroll
  for (int32_t& x : d) asm volatile("" : "+r"(x)::"memory");
}

// Which lanes hold what wgmma wants of a lane: pairs 2 t and 2 t + 1 of the
// eight that 16 columns are. Pair p lies in lane p % 4, word p / 4.
class CodeExchange {
 public:
  __device__ CodeExchange() {
    const int lane = threadIdx.x % 32;
    const int t = lane % 4;
    odd_ = lane % 2 != 0;
    // In the first exchange even lanes hand out word 0, odd ones word 1.
    const int even_source = t % 2 * 2;
    first_ = lane - t + even_source + (t < 2 ? 0 : 1);
    second_ = lane - t + even_source + (t < 2 ? 1 : 0);
    upper_ = t < 2 ? 0x6420 : 0x2064;
    lower_ = t < 2 ? 0x7531 : 0x3175;
  }

  // Words 0 and 1 of 16 columns to the registers of rows g and g + 8.
  __device__ void Arrange(uint32_t word0, uint32_t word1, uint32_t& upper,
                          uint32_t& lower) const {
    const uint32_t a = __shfl_sync(kAllLanes, odd_ ? word1 : word0, first_);
    const uint32_t b = __shfl_sync(kAllLanes, odd_ ? word0 : word1, second_);
    upper = __byte_perm(a, b, upper_);
    lower = __byte_perm(a, b, lower_);
  }

 private:
  bool odd_;
  int first_, second_;
  uint32_t upper_, lower_;
};

// A warp that multiplies: its tile of each job. kGroups: x has a scale for each
// unit, otherwise one for each row.
template <class Codes, int kColumns, bool kGroups>
class CodesConsumer {
  using Sum = typename Codes::Sum;
  static constexpr bool kFloats = std::is_same_v<Sum, float>;

 public:
  __device__ CodesConsumer(const WideShape& shape, uint8_t* shared,
                           uint32_t base)
      : shape_(shape), base_(base), shared_(shared) {}

  __device__ void Multiply(int first, int end) {
#pragma unroll
    for (float& sum : sums_) sum = 0.0f;
    Sum products[kColumns / 2];
    float2 scale = {};
#pragma unroll 1
    for (int unit = first; unit < end; ++unit) {
      uint32_t codes[4][4];
      LoadUnit(codes, scale);
      Await(base_ + kWideXFull + 8 * x_stage_.index, x_stage_.parity);
      MultiplyUnit(codes,
                   base_ + shape_.x_ring + x_stage_.index * kColumns * 128,
                   kFloats || unit == first ? 0 : 1, products);
      const uint32_t freed = base_ + kWideFreed + 8 * w_stage_.index;
      if constexpr (!kGroups) FreeWideStage(freed);
      if constexpr (kFloats) AddUnit(products, scale);
      if constexpr (kGroups) FreeWideStage(freed);
      w_stage_.Next(shape_.w_stages);
      x_stage_.Next(shape_.x_stages);
    }
    if constexpr (!kFloats) AddUnit(products, scale);
  }

  // Times the scales of rows of x [row, row + rows).
  __device__ const float (&Scaled(int row, int rows))[kColumns / 2] {
    if constexpr (!kGroups) {
#pragma unroll
      for (int i = 0; i < kColumns / 4; ++i) {
        const int m = i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2;
        const float scale = m < rows ? shape_.x_row_scales[row + m] : 0.0f;
        sums_[i / 2 * 4 + i % 2] *= scale;
        sums_[i / 2 * 4 + i % 2 + 2] *= scale;
      }
    }
    return sums_;
  }

 private:
  // The unit of the warp's tile that is next in the ring, as operands, and the
  // scales of rows lane / 4 and 8 further.
  __device__ void LoadUnit(uint32_t (&a)[4][4], float2& scale) const {
    const int lane = threadIdx.x % 32;
    Await(base_ + kWideWFull + 8 * w_stage_.index, w_stage_.parity);
    const uint8_t* codes =
        shared_ + shape_.w_ring +
        (w_stage_.index * kTiles + threadIdx.x / 32) * shape_.unit_bytes;
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const uint4 v =
          *reinterpret_cast<const uint4*>(codes + step * 512 + lane * 16);
      exchange_.Arrange(v.x, v.y, a[step][0], a[step][1]);
      exchange_.Arrange(v.z, v.w, a[step][2], a[step][3]);
    }
    scale = __half22float2(*reinterpret_cast<const __half2*>(
        codes + kQuantRows * kQuantColumns + lane / 4 * Codes::kScaleBytes));
  }

  // (The next unit's codes meanwhile: slower, by a tenth.)
  __device__ static void MultiplyUnit(uint32_t (&a)[4][4], uint32_t x,
                                      int accumulate,
                                      Sum (&products)[kColumns / 2]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
    }
    PinRegisters(products);
    sm90::WgmmaFence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      WgmmaCodes<Sum, kColumns>::Issue(products, a[step],
                                       sm90::MatrixDescriptor(x + step * 32),
                                       step == 0 ? accumulate : 1);
    }
    sm90::WgmmaCommit();
    sm90::WgmmaWait<0>();
    PinRegisters(products);
  }

  __device__ void AddUnit(const Sum (&products)[kColumns / 2], float2 scale) {
    const auto* x_scales = reinterpret_cast<const float2*>(
        shared_ + shape_.x_scale_ring + x_stage_.index * kColumns * 4);
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
        sums_[4 * j + i] =
            fmaf(static_cast<float>(products[4 * j + i]),
                 kGroups ? of_w * of_x[i % 2] : of_w, sums_[4 * j + i]);
      }
    }
  }

  const WideShape& shape_;
  uint32_t base_;
  uint8_t* shared_;
  CodeExchange exchange_;
  WideStage w_stage_, x_stage_;
  float sums_[kColumns / 2];
};

template <class Codes, typename T, int kColumns, bool kGroups>
__global__ void __launch_bounds__(kThreads, 1)
    MultiplyCodes(const __grid_constant__ CUtensorMap x,
                  const __grid_constant__ CUtensorMap w_map,
                  const std::byte* __restrict__ w, const float* bias,
                  const __grid_constant__ TensorView residual,
                  const __grid_constant__ TensorView y,
                  const __grid_constant__ WideShape shape) {
  constexpr WideRows kRows = WideRows::kTogether;
  extern __shared__ __align__(1024) uint8_t wide_shared[];
  LetNextBegin();
  const auto base =
      static_cast<uint32_t>(__cvta_generic_to_shared(wide_shared));
  InitWideBarriers(base, kTiles);
  WideCursor<kRows, kTiles> cursor;
  cursor.Begin(shape);
  if (threadIdx.x >= 32 * kTiles) {
    sm90::LowerRegisters<kFewRegisters>();
    if (threadIdx.x / 32 == kTiles) {
      WideProducer<kRows, kTiles, true>(shape, x, w_map, w, base, cursor).Run();
    }
    return;
  }
  sm90::RaiseRegisters<kManyRegisters>();
  CodesConsumer<Codes, kColumns, kGroups> consumer(shape, wide_shared, base);
  WideOutput<T, kColumns, kRows, kTiles> output(shape, wide_shared, base);
#pragma unroll 1
  for (; !cursor.Done(shape); cursor.NextJob(shape)) {
    const int tile =
        min(cursor.tile + static_cast<int>(threadIdx.x) / 32, shape.tiles - 1);
    const auto* head =
        reinterpret_cast<const float*>(w + tile * shape.tile_bytes) +
        threadIdx.x % 32 / 4;
    const float factors[2] = {head[0], head[8]};
    consumer.Multiply(cursor.first, cursor.end);
    WaitForPrevious();
    output.Finish(cursor, consumer.Scaled(cursor.row, cursor.rows), factors,
                  bias, residual, y);
  }
}

template <class Codes, typename T, int kColumns>
absl::Status LaunchTyped(const GemmParams& params, const WideMaps& maps,
                         const WideShape& shape, CudaStream& stream) {
  CudaGrid grid;
  grid.blocks = int64_t{shape.clusters} * shape.splits;
  grid.threads = kThreads;
  grid.shared_bytes = shape.shared_bytes;
  grid.cluster = shape.splits;
  auto* kernel = MultiplyCodes<Codes, T, kColumns, false>;
  if constexpr (std::is_same_v<Codes, E4M3Codes>) {
    if (shape.x_scales != nullptr) {
      kernel = MultiplyCodes<Codes, T, kColumns, true>;
    }
  }
  return LaunchCuda("gemm of codes", stream, grid, kernel, maps.x, maps.w,
                    static_cast<const std::byte*>(params.w.data), params.bias,
                    params.residual, params.y, shape);
}

template <class Codes>
absl::Status Launch(const GemmParams& params, const WideMaps& maps,
                    const WideShape& shape, CudaStream& stream) {
  const bool few = shape.columns == 64;
  if (params.y.dtype == DType::kF16) {
    return few ? LaunchTyped<Codes, __half, 64>(params, maps, shape, stream)
               : LaunchTyped<Codes, __half, 128>(params, maps, shape, stream);
  }
  return few ? LaunchTyped<Codes, __nv_bfloat16, 64>(params, maps, shape,
                                                     stream)
             : LaunchTyped<Codes, __nv_bfloat16, 128>(params, maps, shape,
                                                      stream);
}

}  // namespace

absl::Status LaunchWideCodes(const GemmParams& params, const WideMaps& maps,
                             const QuantForm& form, const WideShape& shape,
                             CudaStream& stream) {
  return form.codes == QuantCodes::kInt8
             ? Launch<Int8Codes>(params, maps, shape, stream)
             : Launch<E4M3Codes>(params, maps, shape, stream);
}

}  // namespace inlay
