// attention's items over caches of i8 and f8_e4m3 (attention_items_sm90.h):
// half the bytes of 16 bits, decoded in registers on the way into the products.
//
// Stage: rows as they lie in the cache, a float32 scale and the codes, keys
// then values. Sixteen rows are a multiple of 16 bytes and rows an odd number
// of words apart, so that with these shares of a tile no lanes of a warp meet
// in a bank (g = lane / 4, t = lane % 4; the order of the sums over dims or
// keys is free, so is that of the columns, as long as both operands have the
// same):
//   keys     g has key 8 (g / 2) + 2 j + g % 2 of score block j, t the words
//            8 s + 2 t and the next for steps 2 s, 2 s + 1 of q k^T
//   scores   so t has keys 8 t + 2 j + i
//   values   t has the same keys, g the words g + 8 i: dims 4 g + 32 i ..
// Codes become T in q k^T, exactly; a key's scale multiplies its scores. A
// value's scale multiplies its weights, which bfloat16 has the range for, so
// weights and values are bfloat16, whatever T is. e4m3 decodes by moving its
// exponent: 2^-120 too small, made up for by 2^60 in weights and in results.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_8BIT_SM90_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_8BIT_SM90_H_

#include <type_traits>

#include "kernels/attention/attention_items_sm90.h"

namespace inlay::items_sm90 {

// Decoding takes long chains of instructions: two warps a scheduler, where
// shared memory has room to merge them. 4 runs too.
constexpr int kDecodingWarps = 8;

// Bytes `selector` of a and b, as PTX's prmt counts them.
__device__ inline uint32_t Bytes(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}

__device__ inline uint32_t SubtractBf16(uint32_t a, uint32_t b) {
  const __nv_bfloat162 d = __hsub2(reinterpret_cast<const __nv_bfloat162&>(a),
                                   reinterpret_cast<const __nv_bfloat162&>(b));
  return reinterpret_cast<const uint32_t&>(d);
}

// Codes in bytes 0 and 2 of x, others anything, to bfloat16: 128 and the low
// seven bits, less 128 or 256.
__device__ inline uint32_t I8ToBf16(uint32_t x) {
  return SubtractBf16((x & 0x007f007fu) | 0x43004300u,
                      (x & 0x00800080u) | 0x43004300u);
}

// Codes in bytes 1 and 3 of x, others anything, to 2^-120 of them in bfloat16.
__device__ inline uint32_t F8ToSmallBf16(uint32_t x) {
  return (x >> 4 & 0x07f007f0u) | (x & 0x80008000u);
}

// Four codes to T, in pairs.
template <typename T, bool kF8>
__device__ inline void DecodeKeys(uint32_t x, uint32_t (&k)[2]) {
  if constexpr (kF8 && std::is_same_v<T, __half>) {
    asm("{\n"
        ".reg .b16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n"
        "cvt.rn.f16x2.e4m3x2 %1, high;\n"
        "}"
        : "=r"(k[0]), "=r"(k[1])
        : "r"(x));
  } else if constexpr (kF8) {
    const __nv_bfloat162 up = __float2bfloat162_rn(0x1p120f);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t small =
          F8ToSmallBf16(Bytes(x, 0, i == 0 ? 0x1404 : 0x3424));
      const __nv_bfloat162 y =
          __hmul2(reinterpret_cast<const __nv_bfloat162&>(small), up);
      k[i] = reinterpret_cast<const uint32_t&>(y);
    }
  } else if constexpr (std::is_same_v<T, __half>) {
    // 1024 and the code plus 128, less 1152.
    const uint32_t up = x ^ 0x80808080u;
    const __half2 less = __half2half2(__ushort_as_half(0x6480));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t y = Bytes(up, 0x64646464u, i == 0 ? 0x4140 : 0x4342);
      const __half2 z = __hsub2(reinterpret_cast<const __half2&>(y), less);
      k[i] = reinterpret_cast<const uint32_t&>(z);
    }
  } else {
    k[0] = I8ToBf16(Bytes(x, 0, 0x4140));
    k[1] = I8ToBf16(Bytes(x, 0, 0x4342));
  }
}

template <typename Type, int kDimension, bool kF8, bool kMaskOrAlibi,
          bool kSelected = false>
struct Format8 {
  using T = Type;
  static constexpr bool kHasMask = kMaskOrAlibi;
  static constexpr int kDim = kDimension;
  static_assert(kDim % 32 == 0);
  static constexpr int kWarps = kDim <= 128 ? kDecodingWarps : 4;
  static constexpr int kSplit = 1;
  static constexpr bool kSharesKeys = false;
  static constexpr bool kSelectsKeys = kSelected;
  static constexpr int kTileKeys = 32;
  static constexpr int kRowBytes = kKvScaleBytes + kDim;
  static constexpr int kTileBytes = kTileKeys * kRowBytes;
  static constexpr int kStageBytes = 2 * kTileBytes;
  static constexpr int kQueryBytes = kRows * 2 * kDim;
  static constexpr int kSpans = kDim / 32;  // of dims: two steps of q k^T, or
                                            // four blocks of columns
  static constexpr int kKeyBlocks = kTileKeys / 8;
  static constexpr int kColumnBlocks = kDim / 8;
  static constexpr float kWeightScale = kF8 ? 0x1p60f : 1.0f;

  class Copier {
   public:
    __device__ Copier(int lane, int /*part*/) : lane_(lane) {}

    __device__ void Copy(uint32_t stage, int half, const std::byte* keys,
                         const std::byte* values) const {
      constexpr int kCount = kRowBytes;  // of 16 bytes, in sixteen rows
      const uint32_t to = stage + half * 16 * kRowBytes + lane_ * 16;
#pragma unroll
      for (int i = 0; i < (kCount + 31) / 32; ++i) {
        if (i * 32 + lane_ >= kCount) continue;
        sm90::CopyAsync16(to + i * 512, keys + lane_ * 16 + i * 512);
        sm90::CopyAsync16(to + kTileBytes + i * 512,
                          values + lane_ * 16 + i * 512);
      }
    }

   private:
    int lane_;
  };

  // [span][row][t] of 16 bytes, the dims of t's two words.
  __device__ static uint32_t QueryOffset(int row, int chunk) {
    return ((chunk / 4 * kRows + row) * 4 + chunk % 4) * 16;
  }

  struct Queries {
    __device__ void Load(uint32_t, int) {}
  };

  __device__ static int KeyOf(int lane, int j, int i) {
    return lane % 4 * 8 + 2 * j + i % 2;
  }

  __device__ static void MultiplyKeys(const Queries&, uint32_t queries,
                                      uint32_t stage, int lane,
                                      float (&s)[kKeyBlocks][4]) {
    const int g = lane / 4;
    const uint32_t from =
        stage + (g / 2 * 8 + g % 2) * kRowBytes + kKvScaleBytes + lane % 4 * 8;
#pragma unroll
    for (int span = 0; span < kSpans; ++span) {
      const uint32_t at = queries + QueryOffset(g, 4 * span) + lane % 4 * 16;
      const uint4 low = sm90::LoadShared16(at);
      const uint4 high = sm90::LoadShared16(at + 8 * 64);
      const uint32_t q[2][4] = {{low.x, high.x, low.y, high.y},
                                {low.z, high.z, low.w, high.w}};
      uint32_t codes[kKeyBlocks][2];
#pragma unroll
      for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          codes[j][step] = sm90::LoadShared4(from + 2 * j * kRowBytes +
                                             span * 32 + step * 4);
        }
      }
#pragma unroll
      for (int step = 0; step < 2; ++step) {
#pragma unroll
        for (int j = 0; j < kKeyBlocks; ++j) {
          uint32_t k[2];
          DecodeKeys<T, kF8>(codes[j][step], k);
          sm90::Mma16816<T>(s[j], q[step], k[0], k[1]);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float scale = __uint_as_float(
            sm90::LoadShared4(stage + KeyOf(lane, j, i) * kRowBytes));
        s[j][i] *= scale;
        s[j][2 + i] *= scale;
      }
    }
  }

  // kMasked: some keys may not be there, or not be seen: their weights are
  // zeros, whatever their scales. Codes are never NaN or infinite here.
  template <bool kMasked>
  __device__ static void MultiplyValues(int, int, uint32_t stage, int lane,
                                        const float (&s)[kKeyBlocks][4],
                                        float (&o)[kColumnBlocks][4]) {
    const uint32_t values = stage + kTileBytes + lane % 4 * 8 * kRowBytes;
#pragma unroll
    for (int step = 0; step < kTileKeys / 16; ++step) {
      uint32_t p[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int j = 2 * step + half;
        float weights[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float scale = __uint_as_float(
              sm90::LoadShared4(values + (2 * j + i % 2) * kRowBytes));
          weights[i] = s[j][i] * (scale * kWeightScale);
          if (kMasked && s[j][i] == 0.0f) weights[i] = 0.0f;
        }
        p[2 * half] = sm90::Pack<__nv_bfloat16>(weights[0], weights[1]);
        p[2 * half + 1] = sm90::Pack<__nv_bfloat16>(weights[2], weights[3]);
      }
      const uint32_t from =
          values + 4 * step * kRowBytes + kKvScaleBytes + lane / 4 * 4;
#pragma unroll
      for (int span = 0; span < kSpans; ++span) {
        uint32_t x[4];
#pragma unroll
        for (int key = 0; key < 4; ++key) {
          x[key] = sm90::LoadShared4(from + key * kRowBytes + span * 32);
        }
#pragma unroll
        for (int byte = 0; byte < 4; ++byte) {
          uint32_t v[2];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            // `byte` of two keys in bytes 1 and 3, or 0 and 2.
            const uint32_t selector =
                kF8 ? static_cast<uint32_t>(byte << 4 | (byte + 4) << 12)
                    : static_cast<uint32_t>(byte | (byte + 4) << 8);
            const uint32_t pair = Bytes(x[2 * i], x[2 * i + 1], selector);
            v[i] = kF8 ? F8ToSmallBf16(pair) : I8ToBf16(pair);
          }
          sm90::Mma16816<__nv_bfloat16>(o[4 * span + byte], p, v[0], v[1]);
        }
      }
    }
  }

  __device__ static void StoreRow(const float (&o)[kColumnBlocks][4], int r,
                                  float* row, int lane) {
#pragma unroll
    for (int span = 0; span < kSpans; ++span) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        *reinterpret_cast<float4*>(row + 32 * span + lane % 4 * 8 + 4 * i) = {
            o[4 * span][2 * r + i] * kWeightScale,
            o[4 * span + 1][2 * r + i] * kWeightScale,
            o[4 * span + 2][2 * r + i] * kWeightScale,
            o[4 * span + 3][2 * r + i] * kWeightScale};
      }
    }
  }
};

template <typename T, int kDim, bool kF8, bool kSelected>
absl::Status LaunchDim8(const AttentionDesc& desc,
                        const AttentionParams& params, CudaStream& stream) {
  if constexpr (kSelected) {
    return LaunchSelected<Format8<T, kDim, kF8, false, true>>(desc, params,
                                                              stream);
  } else {
    return Launch<Format8<T, kDim, kF8, false>, Format8<T, kDim, kF8, true>>(
        desc, params, stream);
  }
}

template <typename T, bool kF8, bool kSelected>
absl::Status LaunchFor8(const AttentionDesc& desc,
                        const AttentionParams& params, CudaStream& stream) {
  switch (desc.head_dim) {
    case 64:
      return LaunchDim8<T, 64, kF8, kSelected>(desc, params, stream);
    case 96:
      return LaunchDim8<T, 96, kF8, kSelected>(desc, params, stream);
    case 128:
      return LaunchDim8<T, 128, kF8, kSelected>(desc, params, stream);
    case 192:
      return LaunchDim8<T, 192, kF8, kSelected>(desc, params, stream);
    default:
      return LaunchDim8<T, 256, kF8, kSelected>(desc, params, stream);
  }
}

// kSelected: desc.selects.
template <bool kF8, bool kSelected = false>
absl::Status Launch8(const AttentionDesc& desc, const AttentionParams& params,
                     CudaStream& stream) {
  return desc.activation == DType::kF16
             ? LaunchFor8<__half, kF8, kSelected>(desc, params, stream)
             : LaunchFor8<__nv_bfloat16, kF8, kSelected>(desc, params, stream);
}

}  // namespace inlay::items_sm90

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_8BIT_SM90_H_
