// A unit of packed 4-bit integers with minima times rows of x, by a warp: what
// product_unit_sm90.cuh does, in fewer instructions.
//
// Codes: a code in the lower bits of a 16-bit float whose other bits are zero
// is a number below the normal ones, code times the least of all: 2^-133 in
// bf16, 2^-24 in f16; four bits further up 16 times that. (In bf16 the top bit
// of those is the exponent's lowest; numbers of that exponent have the same
// spacing.) The tensor cores take such numbers as they are. So two of a
// register's four codes need no shift, and none an offset. What is 16 times as
// much is all of the tile's lower eight rows, whose scale makes up for it.
//
// x: times 2^64 in bf16, for products to be normal float32. So |x| must be less
// than 2^64, and what is less than 2^-57 in a sum of levels times x may be
// lost. f16's need nothing.
//
// Sums of x for the minima: x is the first operand of an mma whose second one
// is all ones, or the least float, to be as the products are. What a column is
// does not matter then, so that the registers of ldmatrix serve as they lie: 8
// rows and 32 columns in one mma. Where groups are of 32 columns and x has 8
// rows, a unit's minima times these are products in tf32: a minimum and a scale
// have its 11 bits, sums are split in two of these. Otherwise lanes fetch them.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_NIBBLES_SM90_CUH_
#define INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_NIBBLES_SM90_CUH_

#include "kernels/gemm/quantised/product_unit_sm90.cuh"

namespace inlay {
namespace {

// Whether MultiplyNibbleUnit serves. Without a minimum sums of x would cost
// more than they save.
template <class Form>
inline constexpr bool kIsNibbles =
    Form::kCodes == QuantCodes::kLinear4&& Form::kHasMin;

// What its sums are to be multiplied by.
template <typename T>
inline constexpr float kNibbleFactor = kIsBf16<T> ? 0x1p69f : 0x1p24f;

// Of 16 columns: rows g in the lower four bits, g + 8 in the next.
__device__ inline void NibbleOperand(uint32_t word, uint32_t (&a)[4]) {
  const uint32_t upper = word >> 8;
  a[0] = word & 0x000f000fu;
  a[1] = word & 0x00f000f0u;
  a[2] = upper & 0x000f000fu;
  a[3] = upper & 0x00f000f0u;
}

__device__ inline void MultiplyTf32(float (&c)[4], const float (&a)[4],
                                    float b0, float b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])),
        "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
        "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}

// Scale and min of rows g and g + 8.
struct NibbleScales {
  __device__ NibbleScales(const uint8_t* unit, int group) {
    const uint2 bits = *reinterpret_cast<const uint2*>(
        unit + QuantCodeBytes(QuantCodes::kLinear4) +
        (group * 8 + threadIdx.x % 32 / 4) * 8);
    scale = WidenPair<__half>(bits.x);
    min = WidenPair<__half>(bits.y);
  }
  float2 scale;
  float2 min;
};

// Adds scales times a group's sums.
template <int kTiles>
__device__ void AddNibbleParts(const NibbleScales& of,
                               const float (&part)[kTiles][4],
                               float (&sums)[kTiles][4]) {
  const float upper = of.scale.y * 0.0625f;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[t][i] = fmaf(i < 2 ? of.scale.x : upper, part[t][i], sums[t][i]);
    }
  }
}

// Adds minima, of the levels' offset too, times sums of x, of which a lane has
// row lane / 4's and wants rows lane % 4 * 2's and the next one's.
template <int kTiles>
__device__ void AddNibbleMinima(const NibbleScales& of,
                                const float (&two)[kTiles][2],
                                float (&sums)[kTiles][4]) {
  const float low = fmaf(-8.0f, of.scale.x, of.min.x);
  const float high = fmaf(-8.0f, of.scale.y, of.min.y);
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[t][i] = fmaf(i < 2 ? low : high, two[t][i % 2], sums[t][i]);
    }
  }
}

// The same of a unit's four groups at once: lane % 4 is the group whose sum of
// x the lane brings.
__device__ inline void AddNibbleMinima(const uint8_t* unit, float sum_x,
                                       float (&sums)[4]) {
  const NibbleScales of(unit, threadIdx.x % 4);
  const float a[4] = {of.min.x, of.min.y, of.scale.x, of.scale.y};
  const float upper =
      __uint_as_float(__float_as_uint(sum_x) & 0xffffe000u);  // tf32's bits
  const float lower = sum_x - upper;
  MultiplyTf32(sums, a, upper, -8.0f * upper);
  MultiplyTf32(sums, a, lower, -8.0f * lower);
}

// One unit of both tiles, as MultiplyQuantUnit; sums without kNibbleFactor.
template <class Form, typename T, int kTiles, class X>
__device__ void MultiplyNibbleUnit(const uint8_t* const (&units)[2], const X& x,
                                   QuantSums<kTiles>& sums) {
  constexpr uint32_t kLeast = 0x00010001u;
  constexpr uint32_t kUp = 0x5f805f80u;         // 2^64 in bf16
  constexpr int kProducts = Form::kGroup / 16;  // of a group
  constexpr bool kMinimaByMma = kTiles == 1 && Form::kGroup == 32;
  const int lane = threadIdx.x % 32;
  float part[2][kTiles][4];
  float sum_x[kTiles][4];
  float sum_of_lane = 0.0f;
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
    uint32_t words[2][4];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint4 v =
          *reinterpret_cast<const uint4*>(units[r] + piece * 512 + lane * 16);
      words[r][0] = v.x, words[r][1] = v.y;
      words[r][2] = v.z, words[r][3] = v.w;
    }
    uint32_t b[kTiles][4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int product = piece * 4 + q;
      if (q % 2 == 0) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          LoadMatrices(x.At(t, product), b[t]);
          if constexpr (kIsBf16<T>) {
#pragma unroll
            for (uint32_t& two : b[t]) two = MultiplyPairs<T>(two, kUp);
          }
        }
      }
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (product % kProducts == 0) part[0][t][i] = part[1][t][i] = 0.0f;
          // Of groups of 16 two at a time.
          if (product % kProducts == 0 && q % 2 == 0) sum_x[t][i] = 0.0f;
        }
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        uint32_t a[4];
        NibbleOperand(words[r][q], a);
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          MultiplyTile<T>(part[r][t], a, b[t][q % 2 * 2], b[t][q % 2 * 2 + 1]);
        }
      }
      if (q % 2 == 0) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          if constexpr (kProducts == 1) {
            const uint32_t apart[4] = {b[t][0], b[t][2], b[t][1], b[t][3]};
            MultiplyTile<T>(sum_x[t], apart, kLeast, kLeast);
          } else {
            MultiplyTile<T>(sum_x[t], b[t], kLeast, kLeast);
          }
        }
      }
      if (product % kProducts != kProducts - 1) continue;
      const int group = product / kProducts;
      float two[kTiles][2];
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const float sum =
            kProducts == 1 ? sum_x[t][q % 2 * 2] : sum_x[t][0] + sum_x[t][2];
        if constexpr (kMinimaByMma) {
          if (group == 0 || lane % 4 == group) sum_of_lane = sum;
        } else {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            two[t][i] = __shfl_sync(~0u, sum, lane % 4 * 8 + 4 * i);
          }
        }
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const NibbleScales of(units[r], group);
        AddNibbleParts<kTiles>(of, part[r], sums.v[r]);
        if constexpr (!kMinimaByMma) {
          AddNibbleMinima<kTiles>(of, two, sums.v[r]);
        }
      }
    }
  }
  if constexpr (kMinimaByMma) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      AddNibbleMinima(units[r], sum_of_lane, sums.v[r][0]);
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_NIBBLES_SM90_CUH_
