// attention over caches of bytes: the blocks that tiles need, as 16 bits
// (attention_unpack.h). An element becomes code * scale in float32, then the
// queries' type, nearest even: exact where a scale is a power of two, as those
// of f8_e4m3 are. Knows no tiles.
//
// Grid: CTA (block, keys or values, part): some rows of a block, whose rows of
// all heads are side by side in both caches. A thread has eight columns of
// kRowsAThread rows, all loaded before the first is converted. Roofline:
// memory, one byte read and two written; what is written stays in the level-2
// cache as far as it fits there.
#include <algorithm>

#include "kernels/attention/attention_sm90.h"
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"

namespace inlay {
namespace {

constexpr int kMostThreads = 256;
constexpr int kRowsAThread = 4;
constexpr int kColumns = 8;  // a thread's, 16 bytes of the result

struct UnpackArgs {
  const int32_t* blocks;  // of the cache
  const std::byte* keys;  // of block 0, from the first head on
  const std::byte* values;
  int64_t block_stride;
  std::byte* out;  // blocks, one after another
  int rows;        // of a block's keys
  int units;       // of kColumns a row
  int parts;       // of a block's keys
};

// Rounded to T; what is finite stays so (f8_e4m3 may have rounded up to 2^16).
template <typename T>
__device__ uint32_t PackFinite(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    uint32_t x;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;"
        : "=r"(x)
        : "f"(high), "f"(low));
    return x;
  } else {
    return NarrowPair<T>(low, high);
  }
}

// Codes in the two low bytes of `codes`.
template <bool kF8>
__device__ float2 DecodePair(uint32_t codes) {
  if constexpr (kF8) {
    uint32_t pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;"
        : "=r"(pair)
        : "h"(static_cast<uint16_t>(codes)));
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  } else {
    // 2^23 and the code plus 128, less as much.
    const uint32_t up = codes ^ 0x8080u;
    const float less = 0x1p23f + 128.0f;
    return {__uint_as_float(__byte_perm(up, 0x4b000000u, 0x7540)) - less,
            __uint_as_float(__byte_perm(up, 0x4b000000u, 0x7541)) - less};
  }
}

template <typename T, bool kF8>
__device__ uint2 DecodeFour(uint32_t codes, float scale) {
  const float2 low = DecodePair<kF8>(codes);
  const float2 high = DecodePair<kF8>(codes >> 16);
  return {PackFinite<T>(low.x * scale, low.y * scale),
          PackFinite<T>(high.x * scale, high.y * scale)};
}

template <typename T, bool kF8>
__global__ void __launch_bounds__(kMostThreads)
    AttentionUnpack(const __grid_constant__ UnpackArgs args) {
  LetNextBegin();
  const int half = static_cast<int>(blockIdx.x) / args.parts;
  const int part = static_cast<int>(blockIdx.x) % args.parts;
  const int unit = static_cast<int>(threadIdx.x) % args.units;
  const int step = static_cast<int>(blockDim.x) / args.units;
  const int first =
      part * step * kRowsAThread + static_cast<int>(threadIdx.x) / args.units;
  const int row_words = 1 + args.units * (kColumns / 4);
  // The plan is not this launch's, nor the one's before: the tables are there.
  const int64_t block = __ldg(args.blocks + half / 2);
  const auto* rows = reinterpret_cast<const uint32_t*>(
      (half % 2 == 0 ? args.keys : args.values) + block * args.block_stride);
  auto* out = reinterpret_cast<uint4*>(args.out) +
              int64_t{half} * args.rows * args.units;
  WaitForPrevious();
  uint32_t scale[kRowsAThread];
  uint32_t low[kRowsAThread];
  uint32_t high[kRowsAThread];
#pragma unroll
  for (int i = 0; i < kRowsAThread; ++i) {
    const int row = first + i * step;
    if (row >= args.rows) break;
    const uint32_t* from = rows + row * row_words;
    scale[i] = from[0];
    low[i] = from[1 + 2 * unit];
    high[i] = from[2 + 2 * unit];
  }
#pragma unroll
  for (int i = 0; i < kRowsAThread; ++i) {
    const int row = first + i * step;
    if (row >= args.rows) break;
    const float x = __uint_as_float(scale[i]);
    const uint2 a = DecodeFour<T, kF8>(low[i], x);
    const uint2 b = DecodeFour<T, kF8>(high[i], x);
    out[row * args.units + unit] = {a.x, a.y, b.x, b.y};
  }
}

using Kernel = void (*)(UnpackArgs);

Kernel KernelFor(DType from, DType to) {
  if (to == DType::kF16) {
    return from == DType::kI8 ? AttentionUnpack<__half, false>
                              : AttentionUnpack<__half, true>;
  }
  return from == DType::kI8 ? AttentionUnpack<__nv_bfloat16, false>
                            : AttentionUnpack<__nv_bfloat16, true>;
}

}  // namespace

absl::Status LaunchAttentionUnpack(const AttentionParams& params,
                                   const AttentionUnpackRound& round,
                                   int first_head, const KvLayerView& unpacked,
                                   CudaStream& stream) {
  const KvLayerView& kv = params.kv;
  const AttentionPlan& plan = *params.plan;
  UnpackArgs args;
  args.blocks =
      reinterpret_cast<const int32_t*>(plan.device + plan.layout.blocks) +
      round.first_block;
  args.keys = kv.KeyRow(0, first_head, 0);
  args.values = kv.ValueRow(0, first_head, 0);
  args.block_stride = kv.block_stride_bytes;
  args.out = unpacked.base.base;
  args.rows = unpacked.num_kv_heads * kv.block_size;
  args.units = kv.head_dim / kColumns;
  const int step = kMostThreads / args.units;
  const int rows_a_part = step * kRowsAThread;
  args.parts = (args.rows + rows_a_part - 1) / rows_a_part;
  return LaunchCuda(
      "attention (unpacking)", stream,
      {int64_t{2} * round.num_blocks * args.parts, step * args.units},
      KernelFor(kv.dtype, unpacked.dtype), args);
}

}  // namespace inlay
