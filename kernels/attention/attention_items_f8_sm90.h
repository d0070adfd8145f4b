// attention's items over caches of f8_e4m3 (attention_items_8bit_sm90.h): codes
// become float16, exactly, by one instruction for two, and so do queries, which
// have fewer bits: in units of a power of two near their row's largest. (What
// is 2^-24 of that is lost.) Weights times their values' scales become float16
// too, in units of the largest scale so far, which the numerator is in as well:
// what a weight is rounded by is 2^-11 of it, or 2^-25 of the largest.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_F8_SM90_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_F8_SM90_H_

#include "kernels/attention/attention_items_8bit_sm90.h"

namespace inlay::items_sm90 {

// Four codes to float16, in pairs.
__device__ inline void UnpackE4m3(uint32_t x, uint32_t (&y)[2]) {
  asm("{\n"
      ".reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\n"
      "cvt.rn.f16x2.e4m3x2 %1, high;\n"
      "}"
      : "=r"(y[0]), "=r"(y[1])
      : "r"(x));
}

template <typename T, int kDim, ByteKeys kKeys, int kBudget>
struct FormatF8 : Rows8<T, kDim, kKeys, kBudget> {
  using Base = Rows8<T, kDim, kKeys, kBudget>;
  using Base::kColumnBlocks;
  using Base::kKeyBlocks;
  using Base::kSpans;

  struct Sums {
    __device__ void Finish(float (&o)[kColumnBlocks][4]) const {
#pragma unroll
      for (auto& block : o) {
#pragma unroll
        for (int i = 0; i < 4; ++i) block[i] *= unit[i / 2];
      }
    }
    float unit[2] = {Base::kLeastScale, Base::kLeastScale};
  };

  struct Queries {
    __device__ void Load(uint32_t queries, int lane, bool few) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (half == 1 && few) continue;
        const uint32_t exponent =
            __float_as_uint(Base::TopOfQuery(queries, lane, half)) &
            0x7f800000u;
        unit[half] = __uint_as_float(exponent);
        const float inverse = __uint_as_float(0x7f000000u - exponent);
#pragma unroll
        for (int span = 0; span < kSpans; ++span) {
          float y[8];
          Base::LoadQuery(queries, lane, half, span, y);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            x[half][span][i] =
                sm90::Pack<__half>(y[2 * i] * inverse, y[2 * i + 1] * inverse);
          }
        }
      }
    }
    uint32_t x[2][kSpans][4];  // dims 0-1, 2-3, 4-5, 6-7 of t's
    float unit[2];
  };

  template <int kHalves>
  __device__ static void MultiplyKeys(const Queries& q, uint32_t stage,
                                      int part, int lane,
                                      float (&s)[kKeyBlocks][2 * kHalves]) {
    float sums[kKeyBlocks][4] = {};
#pragma unroll
    for (int span = 0; span < kSpans; ++span) {
      uint32_t codes[kKeyBlocks][2];
      Base::LoadKeys(stage + part * Base::kPart, lane, span, codes);
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const uint32_t a[4] = {q.x[0][span][2 * step],
                               kHalves == 1 ? 0 : q.x[1][span][2 * step],
                               q.x[0][span][2 * step + 1],
                               kHalves == 1 ? 0 : q.x[1][span][2 * step + 1]};
#pragma unroll
        for (int j = 0; j < kKeyBlocks; ++j) {
          uint32_t k[2];
          UnpackE4m3(codes[j][step], k);
          sm90::Mma16816<__half>(sums[j], a, k[0], k[1]);
        }
      }
    }
    float scales[kKeyBlocks][2];
    Base::LoadScales(stage, lane, scales);
#pragma unroll
    for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
      for (int i = 0; i < 2 * kHalves; ++i) {
        s[j][i] =
            __fmul_rn(sums[j][i], __fmul_rn(scales[j][i % 2], q.unit[i / 2]));
      }
    }
  }

  template <int kHalves>
  __device__ static void AddValues(bool masked, int2 there, uint32_t values,
                                   int part, int lane,
                                   float (&s)[kKeyBlocks][2 * kHalves],
                                   const float (&top)[kHalves], float (&m)[2],
                                   float (&l)[2], float (&o)[kColumnBlocks][4],
                                   Sums& numerator) {
    const uint32_t codes = values + part * Base::kPart;
    float scales[kKeyBlocks][2];
    Base::LoadScales(values, lane, scales);
    float rescale[kHalves];
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const float most =
          fmaxf(numerator.unit[h], TopScale<kHalves>(scales, s, masked, h));
      const float inverse = __fdividef(1.0f, most);
      const float now = fmaxf(m[h], top[h]);
      const float base = now == -INFINITY ? 0.0f : now;
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& x = s[j][2 * h + i];
          const bool seen = !masked || x != -INFINITY;
          const float p = Exp2(__fsub_rn(x, base));
          sum = __fadd_rn(sum, p);
          x = seen ? __fmul_rn(p, __fmul_rn(scales[j][i], inverse)) : 0.0f;
        }
      }
      rescale[h] = Exp2(__fsub_rn(m[h], base));
      m[h] = now;
      l[h] = __fmaf_rn(l[h], rescale[h], sum);
      rescale[h] = __fmul_rn(rescale[h], __fmul_rn(numerator.unit[h], inverse));
      numerator.unit[h] = most;
    }
    Base::template Rescale<kHalves>(rescale, o);
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      uint32_t p[4] = {};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const auto& x = s[2 * step + i];
        p[2 * i] = sm90::Pack<__half>(x[0], x[1]);
        if constexpr (kHalves == 2) {
          p[2 * i + 1] = sm90::Pack<__half>(x[2], x[3]);
        }
      }
      if (masked) {
        MultiplyValues<true>(there, step, codes, lane, p, o);
      } else {
        MultiplyValues<false>(there, step, codes, lane, p, o);
      }
    }
  }

 private:
  // The largest scale of values that row half `h` sees: `s` says which, as
  // scores. What is not seen may be anything.
  template <int kHalves>
  __device__ static float TopScale(const float (&scales)[kKeyBlocks][2],
                                   const float (&s)[kKeyBlocks][2 * kHalves],
                                   bool masked, int h) {
    float top = Base::kLeastScale;
#pragma unroll
    for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (masked && s[j][2 * h + i] == -INFINITY) continue;
        top = fmaxf(top, scales[j][i]);
      }
    }
    return Base::TopOfRow(top);
  }

  // kMasked: values of keys outside `there` count as zeros: nobody says what
  // lies there, and zero times NaN is NaN.
  template <bool kMasked>
  __device__ static void MultiplyValues(int2 there, int step, uint32_t codes,
                                        int lane, const uint32_t (&p)[4],
                                        float (&o)[kColumnBlocks][4]) {
    uint32_t keep = 0xffffffffu;
    if constexpr (kMasked) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int key = lane % 4 * 8 + 4 * step + k;
        if (key < there.x || key >= there.y) keep &= ~(0xffu << (8 * k));
      }
    }
#pragma unroll
    for (int span = 0; span < kSpans; ++span) {
      uint32_t columns[4];
      Base::LoadColumns(codes, lane, 4 * step, span, columns);
#pragma unroll
      for (int byte = 0; byte < 4; ++byte) {
        uint32_t v[2];
        UnpackE4m3(columns[byte] & keep, v);
        sm90::Mma16816<__half>(o[4 * span + byte], p, v[0], v[1]);
      }
    }
  }
};

}  // namespace inlay::items_sm90

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_F8_SM90_H_
