// What caches of i8 and f8_e4m3 have in common to the frame of attention's
// items (attention_items_sm90.h): half the bytes of 16 bits, so that it is
// instructions that count. attention_items_i8_sm90.h and
// attention_items_f8_sm90.h multiply.
//
// Stage: rows as they lie in the cache, a float32 scale and the codes, keys
// then values. Sixteen rows are a multiple of 16 bytes and rows an odd number
// of words apart, so that with these shares of a tile no lanes of a warp meet
// in a bank (g = lane / 4, t = lane % 4; the order of the sums over dims or
// keys is free, so is that of the columns, as long as both operands have the
// same):
//   keys     g has key 8 (g / 2) + 2 j + g % 2 of score block j, t the words
//            8 s + 2 t and the next of 32 dims s
//   scores   so t has keys 8 t + 2 j + i
//   values   t has the same keys, g the words g + 8 i: dims 4 g + 32 i ..
// Above 128 columns two warps share a tile: one loads its keys, the other its
// values, each multiplies half of the columns of both.
// Up to eight rows (kHalves 1) are most of decoding: nothing is computed of
// rows g + 8 then. A row's bits are the same either way, whatever else its item
// has: every step from scores to sums is the row's alone, rounded as written.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_8BIT_SM90_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_8BIT_SM90_H_

#include <type_traits>

#include "kernels/attention/attention_items_launch_sm90.h"

namespace inlay::items_sm90 {

// Two warps a scheduler, where shared memory has room to merge them.
constexpr int kDecodingWarps = 8;

enum class ByteKeys { kPlain, kMasked, kSelected };

template <typename Type, int kDimension, ByteKeys kKeys, int kBudget>
struct Rows8 {
  using T = Type;
  static constexpr bool kHasMask = kKeys == ByteKeys::kMasked;
  static constexpr int kDim = kDimension;
  static_assert(kDim % 32 == 0);
  static constexpr int kSplit = kDim <= 128 ? 1 : 2;
  static constexpr int kWarps =
      kBudget < kSharedMost ? kDecodingWarps / 2 : kDecodingWarps;
  static constexpr int kPart = kDim / kSplit;
  static constexpr bool kBytes = true;
  static constexpr int kSharedBudget = kBudget;
  static constexpr bool kSharesKeys = false;
  static constexpr bool kSelectsKeys = kKeys == ByteKeys::kSelected;
  static constexpr int kMergeRows = kHalfRows;
  static constexpr int kTileKeys = 32;
  static constexpr int kRowBytes = kKvScaleBytes + kDim;
  static constexpr int kTileBytes = kTileKeys * kRowBytes;
  static constexpr int kStageBytes = 2 / kSplit * kTileBytes;
  static constexpr int kQueryBytes = kRows * 2 * kDim;
  static constexpr int kSpans = kPart / 32;  // of dims
  static constexpr int kKeyBlocks = kTileKeys / 8;
  static constexpr int kColumnBlocks = kPart / 8;
  // Below this scales count as it: whatever they are, there are reciprocals.
  static constexpr float kLeastScale = 1e-30f;

  class Copier {
   public:
    __device__ Copier(int lane, int part) : lane_(lane), part_(part) {}

    __device__ void Copy(uint32_t stage, int half, const std::byte* keys,
                         const std::byte* values) const {
      constexpr int kCount = kRowBytes;  // of 16 bytes, in sixteen rows
      const uint32_t to = stage + half * 16 * kRowBytes + lane_ * 16;
#pragma unroll
      for (int i = 0; i < (kCount + 31) / 32; ++i) {
        if (i * 32 + lane_ >= kCount) continue;
        const int at = lane_ * 16 + i * 512;
        if constexpr (kSplit == 1) {
          sm90::CopyAsync16(to + i * 512, keys + at);
          sm90::CopyAsync16(to + kTileBytes + i * 512, values + at);
        } else {
          sm90::CopyAsync16(to + i * 512, (part_ == 0 ? keys : values) + at);
        }
      }
    }

   private:
    int lane_;
    int part_;
  };

  // [span][row][t] of 16 bytes, the dims of t's two words.
  __device__ static uint32_t QueryOffset(int row, int chunk) {
    return ((chunk / 4 * kRows + row) * 4 + chunk % 4) * 16;
  }

  // The lane's dims of `span` in its row g, or g + 8.
  __device__ static void LoadQuery(uint32_t queries, int lane, int half,
                                   int span, float (&x)[8]) {
    const int row = lane / 4 + 8 * half;
    const uint4 bits =
        sm90::LoadShared16(queries + QueryOffset(row, 4 * span + lane % 4));
    const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float2 pair;
      if constexpr (std::is_same_v<T, __half>) {
        pair = __half22float2(reinterpret_cast<const __half2&>(words[i]));
      } else {
        pair = {__uint_as_float(words[i] << 16),
                __uint_as_float(words[i] & 0xffff0000u)};
      }
      x[2 * i] = pair.x;
      x[2 * i + 1] = pair.y;
    }
  }

  // The largest magnitude of the row.
  __device__ static float TopOfQuery(uint32_t queries, int lane, int half) {
    float top = 0.0f;
#pragma unroll
    for (int span = 0; span < kSpans; ++span) {
      float x[8];
      LoadQuery(queries, lane, half, span, x);
#pragma unroll
      for (const float y : x) top = Larger(top, fabsf(y));
    }
    return TopOfRow(top);
  }

  // The larger; NaN where one is: what is not finite has to come out at the
  // end.
  __device__ static float Larger(float a, float b) {
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
  }

  // Of the four lanes that have a row.
  __device__ static float TopOfRow(float top) {
    top = Larger(top, __shfl_xor_sync(0xffffffffu, top, 1));
    return Larger(top, __shfl_xor_sync(0xffffffffu, top, 2));
  }

  __device__ static int KeyOf(int lane, int j, int i) {
    return lane % 4 * 8 + 2 * j + i % 2;
  }

  // The words of score block j's keys in `span`, of `keys` as they begin with
  // the part's dims: half the dims each.
  __device__ static void LoadKeys(uint32_t stage, int lane, int span,
                                  uint32_t (&codes)[kKeyBlocks][2]) {
    const int g = lane / 4;
    const uint32_t from = stage + (g / 2 * 8 + g % 2) * kRowBytes +
                          kKvScaleBytes + lane % 4 * 8 + span * 32;
#pragma unroll
    for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        codes[j][step] = sm90::LoadShared4(from + 2 * j * kRowBytes + step * 4);
      }
    }
  }

  // The scales of the lane's keys, or values.
  __device__ static void LoadScales(uint32_t rows, int lane,
                                    float (&scales)[kKeyBlocks][2]) {
#pragma unroll
    for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        scales[j][i] = __uint_as_float(
            sm90::LoadShared4(rows + KeyOf(lane, j, i) * kRowBytes));
      }
    }
  }

  // Four columns of four of the lane's keys, from `key` on: byte k of
  // columns[c] is key k.
  __device__ static void LoadColumns(uint32_t values, int lane, int key,
                                     int span, uint32_t (&columns)[4]) {
    const uint32_t from = values + (lane % 4 * 8 + key) * kRowBytes +
                          kKvScaleBytes + lane / 4 * 4 + span * 32;
    uint32_t x[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = sm90::LoadShared4(from + k * kRowBytes);
    const uint32_t low[2] = {__byte_perm(x[0], x[1], 0x5140),
                             __byte_perm(x[2], x[3], 0x5140)};
    const uint32_t high[2] = {__byte_perm(x[0], x[1], 0x7362),
                              __byte_perm(x[2], x[3], 0x7362)};
    columns[0] = __byte_perm(low[0], low[1], 0x5410);
    columns[1] = __byte_perm(low[0], low[1], 0x7632);
    columns[2] = __byte_perm(high[0], high[1], 0x5410);
    columns[3] = __byte_perm(high[0], high[1], 0x7632);
  }

  template <int kHalves>
  __device__ static void Rescale(const float (&by)[kHalves],
                                 float (&o)[kColumnBlocks][4]) {
    bool any = false;
#pragma unroll
    for (const float x : by) any = any || x != 1.0f;
    if (!__any_sync(0xffffffffu, any)) return;
#pragma unroll
    for (auto& block : o) {
#pragma unroll
      for (int i = 0; i < 2 * kHalves; ++i) block[i] *= by[i / 2];
    }
  }

  __device__ static void StoreRow(const float (&o)[kColumnBlocks][4], int r,
                                  float* row, int lane) {
#pragma unroll
    for (int span = 0; span < kSpans; ++span) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        *reinterpret_cast<float4*>(row + 32 * span + lane % 4 * 8 + 4 * i) = {
            o[4 * span][2 * r + i], o[4 * span + 1][2 * r + i],
            o[4 * span + 2][2 * r + i], o[4 * span + 3][2 * r + i]};
      }
    }
  }
};

template <template <typename, int, ByteKeys, int> typename Format, typename T,
          int kDim, bool kSelected>
absl::Status LaunchDim8(const AttentionDesc& desc,
                        const AttentionParams& params, CudaStream& stream) {
  if constexpr (kSelected) {
    return LaunchSelected<Format<T, kDim, ByteKeys::kSelected, kSharedMost>>(
        desc, params, stream);
  } else {
    return Launch<Format<T, kDim, ByteKeys::kPlain, kSharedMost>,
                  Format<T, kDim, ByteKeys::kMasked, kSharedMost>>(desc, params,
                                                                   stream);
  }
}

template <template <typename, int, ByteKeys, int> typename Format, typename T,
          bool kSelected>
absl::Status LaunchFor8(const AttentionDesc& desc,
                        const AttentionParams& params, CudaStream& stream) {
  switch (desc.head_dim) {
    case 64:
      return LaunchDim8<Format, T, 64, kSelected>(desc, params, stream);
    case 96:
      return LaunchDim8<Format, T, 96, kSelected>(desc, params, stream);
    case 128:
      return LaunchDim8<Format, T, 128, kSelected>(desc, params, stream);
    case 192:
      return LaunchDim8<Format, T, 192, kSelected>(desc, params, stream);
    default:
      return LaunchDim8<Format, T, 256, kSelected>(desc, params, stream);
  }
}

// kSelected: desc.selects.
template <template <typename, int, ByteKeys, int> typename Format,
          bool kSelected = false>
absl::Status Launch8(const AttentionDesc& desc, const AttentionParams& params,
                     CudaStream& stream) {
  return desc.activation == DType::kF16
             ? LaunchFor8<Format, __half, kSelected>(desc, params, stream)
             : LaunchFor8<Format, __nv_bfloat16, kSelected>(desc, params,
                                                            stream);
}

}  // namespace inlay::items_sm90

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_8BIT_SM90_H_
