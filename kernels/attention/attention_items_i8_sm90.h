// attention's items over caches of i8 (attention_items_8bit_sm90.h): codes go
// into the products as they are, m16n8k32 of whole numbers.
//
// Queries become whole numbers of 16 bits, in units of a 32,639th of their
// row's largest (bf16 itself rounds to a 256th of each): a high byte and a low
// one, both with a sign, high * 256 + low. Up to eight rows have the high bytes
// in rows g of a product and the low ones in rows g + 8; more rows take two
// products. A tile's weights, times their values' scales, do the same without a
// sign, in units of a 65,534th of the row's largest there; the tile's sums
// become floats and join the numerator. Sums of codes are exact: at most 256 *
// 32,639 * 127 and 32 * 65,534 * 127.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_I8_SM90_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_I8_SM90_H_

#include "kernels/attention/attention_items_8bit_sm90.h"

namespace inlay::items_sm90 {

// d += a b: rows of a of signed or unsigned bytes, columns of b of signed ones.
template <bool kSigned>
__device__ inline void MmaBytes(int (&d)[4], uint32_t a0, uint32_t a1,
                                uint32_t a2, uint32_t a3, uint32_t b0,
                                uint32_t b1) {
  if constexpr (kSigned) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, "
        "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, "
        "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

// Byte `which` of four words.
__device__ inline uint32_t BytesOf(const uint32_t (&x)[4], int which) {
  const uint32_t pick = which == 0 ? 0x0040 : 0x0051;
  return __byte_perm(__byte_perm(x[0], x[1], pick),
                     __byte_perm(x[2], x[3], pick), 0x5410);
}

template <typename T, int kDim, ByteKeys kKeys, int kBudget>
struct FormatI8 : Rows8<T, kDim, kKeys, kBudget> {
  using Base = Rows8<T, kDim, kKeys, kBudget>;
  using Base::kColumnBlocks;
  using Base::kKeyBlocks;
  using Base::kSpans;
  static constexpr float kQueryUnits = 32639.0f;
  // One less than fit: w times its reciprocal may round up.
  static constexpr float kWeightUnits = 65534.0f;
  // A whole number is this float's low bits, once it has been added.
  static constexpr float kShift = 12582912.0f;

  struct Sums {
    __device__ void Finish(float (&)[kColumnBlocks][4]) const {}
  };

  struct Queries {
    __device__ void Load(uint32_t queries, int lane, bool few) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (half == 1 && few) continue;
        const float top = Base::Larger(Base::TopOfQuery(queries, lane, half),
                                       Base::kLeastScale);
        unit[half] = __fdividef(top, kQueryUnits);
        const float inverse = __fdividef(kQueryUnits, top);
#pragma unroll
        for (int span = 0; span < kSpans; ++span) {
          float x[8];
          Base::LoadQuery(queries, lane, half, span, x);
#pragma unroll
          for (int word = 0; word < 2; ++word) {
            uint32_t bits[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              bits[i] =
                  __float_as_uint(__fmaf_rn(x[4 * word + i], inverse, kShift));
            }
            low[half][span][word] = BytesOf(bits, 0);
#pragma unroll
            for (uint32_t& b : bits) b += 128;
            high[half][span][word] = BytesOf(bits, 1);
          }
        }
      }
    }
    uint32_t high[2][kSpans][2];
    uint32_t low[2][kSpans][2];
    float unit[2];
  };

  template <int kHalves>
  __device__ static void MultiplyKeys(const Queries& q, uint32_t stage,
                                      int part, int lane,
                                      float (&s)[kKeyBlocks][2 * kHalves]) {
    int sums[kHalves][kKeyBlocks][4] = {};
#pragma unroll
    for (int span = 0; span < kSpans; ++span) {
      uint32_t codes[kKeyBlocks][2];
      Base::LoadKeys(stage + part * Base::kPart, lane, span, codes);
#pragma unroll
      for (int j = 0; j < kKeyBlocks; ++j) {
        const auto& k = codes[j];
        const auto& high = q.high[0][span];
        const auto& low = q.low[0][span];
        if constexpr (kHalves == 1) {
          MmaBytes<true>(sums[0][j], high[0], low[0], high[1], low[1], k[0],
                         k[1]);
        } else {
          const auto& high8 = q.high[1][span];
          const auto& low8 = q.low[1][span];
          MmaBytes<true>(sums[0][j], high[0], high8[0], high[1], high8[1], k[0],
                         k[1]);
          MmaBytes<true>(sums[1][j], low[0], low8[0], low[1], low8[1], k[0],
                         k[1]);
        }
      }
    }
    float scales[kKeyBlocks][2];
    Base::LoadScales(stage, lane, scales);
#pragma unroll
    for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
      for (int i = 0; i < 2 * kHalves; ++i) {
        s[j][i] = __fmul_rn(Whole<kHalves>(sums, j, i),
                            __fmul_rn(scales[j][i % 2], q.unit[i / 2]));
      }
    }
  }

  template <int kHalves>
  __device__ static void AddValues(bool masked, int2 /*there*/, uint32_t values,
                                   int part, int lane,
                                   float (&s)[kKeyBlocks][2 * kHalves],
                                   const float (&top)[kHalves], float (&m)[2],
                                   float (&l)[2], float (&o)[kColumnBlocks][4],
                                   Sums&) {
    const uint32_t codes = values + part * Base::kPart;
    float scales[kKeyBlocks][2];
    Base::LoadScales(values, lane, scales);
    float rescale[kHalves];
    float unit[kHalves];        // of the tile's sums, in the numerator's
    uint32_t w[kHalves][2][2];  // four keys' weights: high bytes, low ones
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const float now = fmaxf(m[h], top[h]);
      const float base = now == -INFINITY ? 0.0f : now;
      float sum = 0.0f;
      float scaled[8];
      float most = Base::kLeastScale;
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const float score = s[k / 2][2 * h + k % 2];
        const float p = Exp2(__fsub_rn(score, base));
        sum = __fadd_rn(sum, p);
        scaled[k] = masked && score == -INFINITY
                        ? 0.0f
                        : __fmul_rn(p, scales[k / 2][k % 2]);
        most = Base::Larger(most, scaled[k]);
      }
      most = Base::TopOfRow(most);
      const float inverse = __fdividef(kWeightUnits, most);
#pragma unroll
      for (int word = 0; word < 2; ++word) {
        uint32_t bits[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          bits[k] =
              __float_as_uint(__fmaf_rn(scaled[4 * word + k], inverse, kShift));
        }
        w[h][word][0] = BytesOf(bits, 1);
        w[h][word][1] = BytesOf(bits, 0);
      }
      rescale[h] = Exp2(__fsub_rn(m[h], base));
      m[h] = now;
      l[h] = __fmaf_rn(l[h], rescale[h], sum);
      unit[h] = __fdividef(most, kWeightUnits);
    }
    Base::template Rescale<kHalves>(rescale, o);
#pragma unroll
    for (int span = 0; span < kSpans; ++span) {
      uint32_t v[2][4];
      Base::LoadColumns(codes, lane, 0, span, v[0]);
      Base::LoadColumns(codes, lane, 4, span, v[1]);
#pragma unroll
      for (int byte = 0; byte < 4; ++byte) {
        int sums[kHalves][1][4] = {};
        if constexpr (kHalves == 1) {
          MmaBytes<false>(sums[0][0], w[0][0][0], w[0][0][1], w[0][1][0],
                          w[0][1][1], v[0][byte], v[1][byte]);
        } else {
#pragma unroll
          for (int part = 0; part < 2; ++part) {
            MmaBytes<false>(sums[part][0], w[0][0][part], w[1][0][part],
                            w[0][1][part], w[1][1][part], v[0][byte],
                            v[1][byte]);
          }
        }
#pragma unroll
        for (int i = 0; i < 2 * kHalves; ++i) {
          float& to = o[4 * span + byte][i];
          to = __fmaf_rn(unit[i / 2], Whole<kHalves>(sums, 0, i), to);
        }
      }
    }
  }

 private:
  // Of both bytes' sums.
  template <int kHalves, int kBlocks>
  __device__ static float Whole(const int (&sums)[kHalves][kBlocks][4], int j,
                                int i) {
    if constexpr (kHalves == 1) {
      return __int2float_rn(sums[0][j][i] * 256 + sums[0][j][2 + i]);
    } else {
      return __int2float_rn(sums[0][j][i] * 256 + sums[1][j][i]);
    }
  }
};

}  // namespace inlay::items_sm90

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_I8_SM90_H_
