// gemm over quantised weights for 17 and more rows of x on Hopper: weights are
// decoded, scaled and rounded to x's type in registers, as the left operand of
// wgmma. Included by the product_wide_*_sm90.cu.
//
// Mapping, shared memory, barriers, order of sums: wide_block_sm90.cuh, with 16
// warps that multiply and float32 accumulators. A warp decodes 32 columns while
// the tensor cores have its last 32. QUANTISED.md says what rounding weights
// costs.
//
// Roofline: packed bytes over the copy bandwidth up to about 64 rows, the rate
// of the tensor cores from there on.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_WIDE_SM90_CUH_
#define INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_WIDE_SM90_CUH_

#include <type_traits>

#include "kernels/attention/sm90_ops.h"
#include "kernels/attention/wgmma_sm90.h"
#include "kernels/gemm/quantised/decode.cuh"
#include "kernels/gemm/quantised/form_type.h"
#include "kernels/gemm/quantised/operand_scales.cuh"
#include "kernels/gemm/quantised/wide_block_sm90.cuh"

namespace inlay {
namespace {

// A warpgroup that copies, with one warp: registers are handed over by the
// warpgroup. A block begins with kEach for each of its warps and has no more
// to share out.
template <int kTiles>
struct WideRegisters {
  static constexpr int kEach = kTiles == kWideTiles ? 96 : 168;
  static constexpr int kFew = kTiles == kWideTiles ? 32 : 40;
  static constexpr int kMany = kTiles == kWideTiles ? 112 : 232;
  static_assert(kTiles * kMany + 4 * kFew <= (kTiles + 4) * kEach);
};

// Codes of a step of 32 columns; of fewer than 8 bits those of two at once.
template <class Decoder>
__device__ void LoadWideCodes(Decoder& decoder, const uint8_t* unit, int step,
                              const LevelBytes& levels) {
  const int lane = threadIdx.x % 32;
  if constexpr (std::is_base_of_v<QuantBytes8, Decoder>) {
    const uint4 v =
        *reinterpret_cast<const uint4*>(unit + step * 512 + lane * 16);
    uint32_t* words = decoder.words + step % 2 * 4;
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
  } else if (step % 2 == 0) {
    decoder.Load(unit, lane, step / 2, levels);
  }
}

// A warp that multiplies: its tile of each job.
template <class Form, typename T, int kTiles, int kColumns>
class WideConsumer {
 public:
  __device__ WideConsumer(const WideShape& shape, uint8_t* shared,
                          uint32_t base, const LevelBytes& levels)
      : shape_(shape), levels_(levels), base_(base), shared_(shared) {}

  __device__ void Multiply(int first, int end) {
#pragma unroll
    for (float& sum : sums_) sum = 0.0f;
    uint32_t last = 0;
#pragma unroll 1
    for (int unit = first; unit < end; ++unit) {
      Await(base_ + kWideWFull + 8 * w_stage_.index, w_stage_.parity);
      Await(base_ + kWideXFull + 8 * x_stage_.index, x_stage_.parity);
      MultiplyUnit(
          shared_ + shape_.w_ring +
              (w_stage_.index * kTiles + threadIdx.x / 32) * shape_.unit_bytes,
          base_ + shape_.x_ring + x_stage_.index * kColumns * 256, last);
      last = base_ + kWideFreed + 8 * w_stage_.index;
      w_stage_.Next(shape_.w_stages);
      x_stage_.Next(shape_.x_stages);
    }
    sm90::WgmmaWait<0>();
    sm90::PinRegisters(sums_);
    FreeWideStage(last);
  }

  __device__ const float (&sums() const)[kColumns / 2] { return sums_; }

 private:
  // `last`: what to say that the unit before is done with; 0: there was none.
  __device__ void MultiplyUnit(const uint8_t* unit, uint32_t x, uint32_t last) {
    const int lane = threadIdx.x % 32;
    // Of large groups again and again where registers are short.
    constexpr int kReload =
        kTiles == kWideTiles && kColumns > 64 && Form::kGroup > 32
            ? 32
            : Form::kGroup;
    constexpr int kRowBytes = Form::kHasMin ? 8 : 4;  // of two rows
    const uint8_t* scales_at =
        unit + QuantCodeBytes(Form::kCodes) + lane / 4 * kRowBytes;
    OperandScales<T, Form::kHasMin> scales;
    QuantDecoder<Form::kCodes, T> decoder;
    uint32_t a[2][2][4];
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      LoadWideCodes(decoder, unit, step, levels_);
      // All but what was issued last: the operands before it are free.
      sm90::WgmmaWait<1>();
      if (step == 1) FreeWideStage(last);
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        const int product = 2 * step + q;
        if (product * 16 % kReload == 0) {
          scales.Load(scales_at + product * 16 / Form::kGroup * 8 * kRowBytes);
        }
        decoder.Operand(product % 4, a[step % 2][q]);
        scales.Apply(a[step % 2][q]);
        // Not later than the fence.
#pragma unroll
        for (uint32_t& pair : a[step % 2][q]) {
          asm volatile("" : "+r"(pair)::"memory");
        }
      }
      sm90::WgmmaFence();
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        const int product = 2 * step + q;
        sm90::Wgmma<T, kColumns>::template Issue<0>(
            sums_, a[step % 2][q],
            sm90::MatrixDescriptor(x + product / 4 * kColumns * 128 +
                                   product % 4 * 32),
            1);
      }
      sm90::WgmmaCommit();
    }
  }

  const WideShape& shape_;
  const LevelBytes& levels_;
  uint32_t base_;
  uint8_t* shared_;
  WideStage w_stage_, x_stage_;
  float sums_[kColumns / 2];
};

template <class Form, typename T, int kTiles, int kColumns, WideRows kRows>
__global__ void __launch_bounds__(WideBlock<kTiles>::kThreads, 1)
    QuantWide(const __grid_constant__ CUtensorMap x,
              const __grid_constant__ CUtensorMap w_map,
              const std::byte* __restrict__ w, const float* bias,
              const __grid_constant__ TensorView residual,
              const __grid_constant__ TensorView y,
              const __grid_constant__ LevelBytes levels,
              const __grid_constant__ WideShape shape) {
  extern __shared__ __align__(1024) uint8_t wide_shared[];
  LetNextBegin();
  const auto base =
      static_cast<uint32_t>(__cvta_generic_to_shared(wide_shared));
  InitWideBarriers(base, kTiles);
  // Which rows there are is the result of the work before.
  if constexpr (kHasGroups<kRows>) WaitForPrevious();
  WideCursor<kRows, kTiles> cursor;
  cursor.Begin(shape);
  if (threadIdx.x >= 32 * kTiles) {
    sm90::LowerRegisters<WideRegisters<kTiles>::kFew>();
    if (threadIdx.x / 32 == kTiles) {
      WideProducer<kRows, kTiles, false>(shape, x, w_map, w, base, cursor)
          .Run();
    }
    return;
  }
  sm90::RaiseRegisters<WideRegisters<kTiles>::kMany>();
  WideConsumer<Form, T, kTiles, kColumns> consumer(shape, wide_shared, base,
                                                   levels);
  WideOutput<T, kColumns, kRows, kTiles> output(shape, wide_shared, base);
#pragma unroll 1
  for (; !cursor.Done(shape); cursor.NextJob(shape)) {
    int tile =
        min(cursor.tile + static_cast<int>(threadIdx.x) / 32, shape.tiles - 1);
    const std::byte* matrix = w;
    if constexpr (kRows == WideRows::kGroupsApart) {
      matrix += shape.table[cursor.group];
      tile = min(cursor.n / kQuantRows + static_cast<int>(threadIdx.x) / 32,
                 shape.group_tiles - 1);
    }
    const auto* head =
        reinterpret_cast<const float*>(matrix + tile * shape.tile_bytes) +
        threadIdx.x % 32 / 4;
    const float factors[2] = {head[0] * kOperandFactor<T>,
                              head[8] * kOperandFactor<T>};
    consumer.Multiply(cursor.first, cursor.end);
    WaitForPrevious();
    const float* own_bias = bias;
    if constexpr (kHasGroups<kRows>) {
      if (bias != nullptr) own_bias += cursor.group * shape.n;
    }
    output.Finish(cursor, consumer.sums(), factors, own_bias, residual, y);
  }
}

template <class Form, typename T, int kTiles, int kColumns>
absl::Status LaunchWideTyped(const GemmParams& params, const WideMaps& maps,
                             const QuantForm& form, const WideShape& shape,
                             CudaStream& stream) {
  CudaGrid grid;
  grid.blocks = int64_t{shape.clusters} * shape.splits;
  grid.threads = WideBlock<kTiles>::kThreads;
  grid.shared_bytes = shape.shared_bytes;
  grid.cluster = shape.splits;
  const std::byte* w = params.w.data;
  const LevelBytes levels = LevelBytesOf<T>(form);
  auto* kernel =
      shape.splits > 1 && shape.whole > 0
          ? QuantWide<Form, T, kTiles, kColumns, WideRows::kTogetherLast>
          : QuantWide<Form, T, kTiles, kColumns, WideRows::kTogether>;
  if constexpr (kTiles == kWideTiles) {
    if (shape.offsets != nullptr) {
      kernel =
          shape.table == nullptr
              ? QuantWide<Form, T, kTiles, kColumns, WideRows::kGroups>
              : QuantWide<Form, T, kTiles, kColumns, WideRows::kGroupsApart>;
    }
  }
  return LaunchCuda("wide quantised gemm", stream, grid, kernel, maps.x, maps.w,
                    w, params.bias, params.residual, params.y, levels, shape);
}

template <class Form, typename T>
absl::Status LaunchWideOf(const GemmParams& params, const WideMaps& maps,
                          const QuantForm& form, const WideShape& shape,
                          CudaStream& stream) {
  switch (shape.columns) {
    case 64:
      return LaunchWideTyped<Form, T, kWideTiles, 64>(params, maps, form, shape,
                                                      stream);
    case 128:
      return LaunchWideTyped<Form, T, kWideTiles, 128>(params, maps, form,
                                                       shape, stream);
    default:
      return LaunchWideTyped<Form, T, kWideFewTiles, 256>(params, maps, form,
                                                          shape, stream);
  }
}

}  // namespace

template <class Form>
absl::Status LaunchWide(const GemmParams& params, const WideMaps& maps,
                        const QuantForm& form, const WideShape& shape,
                        CudaStream& stream) {
  return params.x.dtype == DType::kF16
             ? LaunchWideOf<Form, __half>(params, maps, form, shape, stream)
             : LaunchWideOf<Form, __nv_bfloat16>(params, maps, form, shape,
                                                 stream);
}

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_WIDE_SM90_CUH_
