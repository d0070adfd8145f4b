// A unit of packed weights (gemm/quantised/layout.h) times up to kChainRows
// rows of x by a warp, most in integers: mma.m16n8k32 of 8-bit integers (PTX
// ISA, "Matrix fragments for mma.m16n8k32"; k16 where groups are of 16) takes
// codes almost as they lie, where 16-bit floats of them cost several
// instructions each.
//
// x: in each unit of 128 columns a row's numbers are integers of 23 bits times
// a power of two, exact for bf16 whose magnitude is within 2^-14 of the unit's
// largest; what is less is rounded at 2^-22 of the largest. Three digits to the
// base 256, from -128 to 127, are three columns of the product. In shared
// memory ("planes") digits of 16 columns lie as a lane has their codes: of
// columns 2 t, 2 t + 8, 2 t + 1, 2 t + 9 for t from 0 to 3; where codes are
// looked up, four at a time, 2 t, 2 t + 1, 2 t + 8, 2 t + 9. Numbers that are
// not bf16 are rounded so too: 2^-22 of a unit's largest is less than what
// float32 sums of such products are off by.
//
// Sums of a group's products stay below 2^22, so that they begin as the bits of
// 1.5 * 2^23 and end as a float32 that holds them exactly.
//
// Codes that are floats (e4m3), and those whose levels are no integers of 7
// bits, are multiplied as f16 (mma.m16n8k16), which holds them exactly: e4m3 at
// 2^-8, its fields moved to those of f16. x then is f16 times a power of two
// for a unit: exact for bf16 within 2^-28 of the unit's largest, other numbers
// rounded to 11 bits. A row has the first of four columns of the product; they
// lie in order.
//
// Weights that are 16-bit floats and lie as in files are multiplied as they
// are, x being numbers of their type.
#ifndef INLAY_KERNELS_LINEAR_CHAIN_CHAIN_UNIT_CUH_
#define INLAY_KERNELS_LINEAR_CHAIN_CHAIN_UNIT_CUH_

#include <type_traits>

#include "kernels/cuda_float.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/gemm/quantised/decode.cuh"
#include "kernels/gemm/quantised/layout.h"
#include "kernels/linear_chain/chain_shape.h"

namespace inlay {

inline constexpr unsigned kChainLanes = 0xffffffffu;  // of a warp, all
inline constexpr float kChainMagic = 12582912.0f;
inline constexpr int32_t kChainMagicBits = 0x4b400000;

constexpr ChainX ChainXOf(QuantCodes codes) {
  return codes == QuantCodes::kTable4 ? ChainX::kNeighbours
         : codes == QuantCodes::kE4M3 ? ChainX::kFloats
                                      : ChainX::kDigits;
}

template <QuantCodes kCodesOf, int kGroupOf, bool kMinOf,
          ChainX kXOf = ChainXOf(kCodesOf)>
struct ChainForm {
  static constexpr QuantCodes kCodes = kCodesOf;
  using Number = __half;  // of x, where that is kFloats
  static constexpr ChainX kX = kXOf;
  static constexpr bool kPlain = false;
  static constexpr bool kFloats = kX == ChainX::kFloats;
  static constexpr int kGroup = kGroupOf;
  static constexpr bool kMin = kMinOf;
  static constexpr bool kNibbles = kCodes == QuantCodes::kLinear4;
  static constexpr bool kSixBits = kCodes == QuantCodes::kLinear6;
  static constexpr bool kTable = kCodes == QuantCodes::kTable4;
  static constexpr bool kNeighbours = kX == ChainX::kNeighbours;
  static constexpr int kGroups = kQuantColumns / kGroup;  // of a unit
  static constexpr int kUnitBytes = QuantUnitBytes(kCodes, kGroup, kMin);
  static constexpr int kFactsOfX = ChainFactsOfX(kCodes, kGroup, kMin);
  static constexpr bool kSums = kFactsOfX > 1;
  // Columns of one mma.
  static constexpr int kProduct = kFloats || kGroup < 32 ? 16 : 32;
  // Levels are codes less this, times this; of tables ChainLevels::one.
  static constexpr float kMiddle = kNibbles ? 8.0f : 0.0f;
  static constexpr float kLevel = kSixBits                      ? 0.25f
                                  : kCodes == QuantCodes::kE4M3 ? 256.0f
                                                                : 1.0f;
  static_assert(!kMin || !kTable);
  static_assert(kGroup >= 32 || (kGroup == 16 && !kNibbles && !kFloats));
  static_assert(kFloats ? !kSums && (kTable || kCodes == QuantCodes::kE4M3)
                : kNeighbours ? kTable || kCodes == QuantCodes::kInt8
                              : !kTable && kCodes != QuantCodes::kE4M3);
};

// Of weights of type T that lie as in files.
template <typename T>
struct ChainPlain {
  using Number = T;
  static constexpr ChainX kX = ChainX::kFloats;
  static constexpr bool kPlain = true;
  static constexpr bool kFloats = true;
  static constexpr bool kNibbles = false;
  static constexpr bool kTable = false;
  static constexpr int kGroup = kQuantColumns;
  static constexpr int kUnitBytes = kPlainUnitBytes;
  static constexpr int kFactsOfX = 1;
  static constexpr bool kSums = false;
  static constexpr float kLevel = 1.0f;
};

// A chain's weights lie as First or, some stages', as Second. x is made for
// First, which is also what Second reads.
template <class FirstForm, class SecondForm = FirstForm>
struct ChainForms {
  using First = FirstForm;
  using Second = SecondForm;
  static constexpr bool kMixed = !std::is_same_v<First, Second>;
  static constexpr int kFactsOfX = First::kFactsOfX;
  static constexpr int kMostUnitBytes = First::kUnitBytes > Second::kUnitBytes
                                            ? First::kUnitBytes
                                            : Second::kUnitBytes;
  static constexpr int kPlaceUnits = ChainPlaceUnits(kMostUnitBytes);
  static constexpr int kPlaceBytes = kPlaceUnits * kMostUnitBytes;
  static constexpr int kParts = kChainWarps / kPlaceUnits;  // places of a tile
  static_assert(First::kX == Second::kX);
  static_assert(!Second::kSums || (Second::kFactsOfX == kFactsOfX &&
                                   Second::kGroup == First::kGroup));
};

// Of this block's shared memory, as it is when a warp has waited for it.
__device__ inline uint4 LoadChain16(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address));
  return v;
}
__device__ inline uint2 LoadChain8(uint32_t address) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "r"(address));
  return v;
}
__device__ inline uint32_t LoadChain4(uint32_t address) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address));
  return v;
}

// Of codes a and x b, both of registers of 16 columns.
template <class Form>
__device__ void MultiplyCodes(int32_t (&c)[4], const uint32_t* a,
                              const uint32_t* b) {
  if constexpr (Form::kProduct == 16) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
        "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b[0]));
  } else if constexpr (Form::kNibbles) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

template <typename T>
__device__ void MultiplyFloats(float (&c)[4], const uint32_t (&a)[4],
                               const uint32_t* b) {
  if constexpr (kIsBf16<T>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

// What a warp keeps of levels.
struct NoChainLevels {
  __device__ explicit NoChainLevels(const ChainLevels&) {}
};
template <class Form>
using LevelsOf = std::conditional_t<Form::kTable, ChainLevels, NoChainLevels>;

// A lane's sums over units, without the factors of w's rows. Columns of
// products: 4 r + d is digit d of row r of x, so that a lane with an even
// number has digits 0 and 1 of row lane % 4 / 2, its neighbour digit 2; where
// numbers are floats, both have them in the first.
struct ChainSums {
  // Of w's row lane / 4, and lane / 4 + 8, with both lanes of a row of x.
  template <class Form>
  __device__ float2 Total(const LevelsOf<Form>& levels) const {
    if constexpr (Form::kFloats) {
      return make_float2(Form::kLevel * products[0],
                         Form::kLevel * products[2]);
    }
    // Of nibbles the upper rows come 16 times as large: ChainUnit.
    constexpr float kUpper = Form::kNibbles ? 0x1p-4f : 1.0f;
    float one_level = Form::kLevel;
    if constexpr (Form::kTable) one_level = levels.one;
    const bool even = threadIdx.x % 2 == 0;
    const float first = even ? one_level : 65536.0f * one_level;
    const float second = even ? 256.0f * one_level : 0.0f;
    float low = fmaf(second, products[1], first * products[0]);
    float high = fmaf(second, products[3], first * products[2]) * kUpper;
    if (even) low += offsets[0], high += offsets[1];
    low += __shfl_xor_sync(kChainLanes, low, 1);
    high += __shfl_xor_sync(kChainLanes, high, 1);
    return make_float2(low, high);
  }
  float products[4] = {};
  float offsets[2] = {};
};

// What a lane has of a unit of x. Addresses are of shared memory.
template <class Form>
struct ChainUnitOfX {
  // `x`: where ldmatrix finds the lane's part of the unit's first 64 bytes;
  // `facts`: the unit's, of the lane's row of x.
  __device__ ChainUnitOfX(uint32_t x, uint32_t facts) {
#pragma unroll
    for (int i = 0; i < kWords / 4; ++i) {
      asm volatile(
          "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
          : "=r"(words[4 * i]), "=r"(words[4 * i + 1]), "=r"(words[4 * i + 2]),
            "=r"(words[4 * i + 3])
          : "r"(x + i * 64));
    }
    if constexpr (Form::kFactsOfX == 2) {
      const uint2 two = LoadChain8(facts);
      scale = __uint_as_float(two.x);
      sums[0] = __uint_as_float(two.y);
    } else {
      scale = __uint_as_float(LoadChain4(facts));
      if constexpr (Form::kSums) {
        const uint4 four = LoadChain16(facts + 16);
        sums[0] = __uint_as_float(four.x), sums[1] = __uint_as_float(four.y);
        sums[2] = __uint_as_float(four.z), sums[3] = __uint_as_float(four.w);
      }
    }
  }
  static constexpr int kWords = ChainPlaneBytes(Form::kX) / 16;
  uint32_t words[kWords];  // of each 16 columns
  float scale;
  float sums[4];  // of groups
};

// __byte_perm, which leaves the upper bits of selectors away; with them a byte
// is as many copies of the chosen byte's sign.
__device__ inline uint32_t RepeatingPermute(uint32_t x, uint32_t y,
                                            uint32_t selectors) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;"
      : "=r"(bytes)
      : "r"(x), "r"(y), "r"(selectors));
  return bytes;
}

// What a lane has of a unit of w.
template <class Form>
class ChainUnit {
 public:
  __device__ explicit ChainUnit(uint32_t unit) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kWords / 4; ++i) {
      const uint4 v = LoadChain16(unit + i * 512 + lane * 16);
      words_[4 * i] = v.x, words_[4 * i + 1] = v.y;
      words_[4 * i + 2] = v.z, words_[4 * i + 3] = v.w;
    }
    constexpr uint32_t kRowBytes = Form::kMin ? 8 : 4;  // of two rows
    const uint32_t at =
        unit + QuantCodeBytes(Form::kCodes) + lane / 4 * kRowBytes;
#pragma unroll
    for (int g = 0; g < Form::kGroups; ++g) {
      const uint32_t of_group = at + g * (kQuantRows / 2 * kRowBytes);
      if constexpr (Form::kMin) {
        scales_[g] = LoadChain8(of_group);
      } else {
        scales_[g] = make_uint2(LoadChain4(of_group), 0);
      }
    }
    if constexpr (Form::kSixBits) {
      // Codes less 32 as signed bytes, times 4: the upper bit is the sign's.
#pragma unroll
      for (int i = 0; i < 4; ++i) words_[8 + i] ^= 0xaaaaaaaau;
    }
  }

  // `rows`: what w's rows lane / 4 and lane / 4 + 8 are multiplied by.
  __device__ void AddTo(const ChainUnitOfX<Form>& x,
                        const LevelsOf<Form>& levels, ChainSums& sums,
                        float2 rows = {1.0f, 1.0f}) const {
    if constexpr (Form::kFloats) {
      AddFloatsTo(x, levels, sums, rows);
      return;
    }
    constexpr int kInGroup = Form::kGroup / Form::kProduct;
    constexpr int kSteps = Form::kProduct / 16;
    // Of tables the second half's levels are summed up by themselves.
    int32_t part[4], less[4];
#pragma unroll
    for (int product = 0; product < kQuantColumns / Form::kProduct; ++product) {
      if (product % kInGroup == 0) {
#pragma unroll
        for (int j = 0; j < 4; ++j) part[j] = less[j] = kChainMagicBits;
      }
      const uint32_t* const digits = &x.words[kSteps * product];
      uint32_t a[2 * kSteps];
      if constexpr (Form::kTable) {
        uint32_t b[2 * kSteps];
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
          LookUp(words_[kSteps * product + i], levels, &a[2 * i], &b[2 * i]);
        }
        MultiplyCodes<Form>(less, b, digits);
      } else {
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
          Operand(kSteps * product + i, a[2 * i], a[2 * i + 1]);
        }
      }
      MultiplyCodes<Form>(part, a, digits);
      if (product % kInGroup == kInGroup - 1) {
        AddGroup(product / kInGroup, part, less, x, rows, sums);
      }
    }
  }

 private:
  static constexpr int kWords = QuantCodeBytes(Form::kCodes) / 128;

  __device__ void AddFloatsTo(const ChainUnitOfX<Form>& x,
                              const LevelsOf<Form>& levels, ChainSums& sums,
                              float2 rows) const {
    constexpr int kInGroup = Form::kGroup / Form::kProduct;
    float part[4];
#pragma unroll
    for (int step = 0; step < kQuantColumns / Form::kProduct; ++step) {
      if (step % kInGroup == 0) {
#pragma unroll
        for (float& sum : part) sum = 0.0f;
      }
      uint32_t a[4];
      if constexpr (Form::kTable) {
        LookUpOperand(words_[step], levels.bytes, levels.bytes + 4, a);
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint32_t word = words_[2 * step + i];
          a[2 * i] = E4M3Fields<__half>(word << 8);
          a[2 * i + 1] = E4M3Fields<__half>(word);
        }
      }
      MultiplyFloats<__half>(part, a, &x.words[2 * step]);
      if (step % kInGroup == kInGroup - 1) {
        const float2 scale = WidenPair<__half>(scales_[step / kInGroup].x);
        sums.products[0] =
            fmaf(scale.x * (x.scale * rows.x), part[0], sums.products[0]);
        sums.products[2] =
            fmaf(scale.y * (x.scale * rows.y), part[2], sums.products[2]);
      }
    }
  }

  // Of 16 columns, rows 0 to 7 and 8 to 15. Of nibbles the latter keep those of
  // the former in their lower halves: their products are subtracted from the
  // sums.
  __device__ void Operand(int step, uint32_t& low, uint32_t& high) const {
    if constexpr (Form::kNibbles) {
      low = words_[step] & 0x0f0f0f0fu;
      high = words_[step];
    } else if constexpr (Form::kSixBits) {
      // Fields of two bits of a half: rows and columns as QuantHighAt has them.
      const uint32_t upper =
          __byte_perm(words_[8 + step / 2], 0, step % 2 == 0 ? 0x2200 : 0x3311);
      low = (words_[step] << 2 & 0x3c3c3c3cu) | (upper << 6 & 0x00c000c0u) |
            (upper << 2 & 0xc000c000u);
      high = (words_[step] >> 2 & 0x3c3c3c3cu) | (upper << 4 & 0x00c000c0u) |
             (upper & 0xc000c000u);
    } else {
      constexpr uint32_t kLow = Form::kNeighbours ? 0x6420 : 0x6240;
      low = __byte_perm(words_[2 * step], words_[2 * step + 1], kLow);
      high = __byte_perm(words_[2 * step], words_[2 * step + 1], kLow + 0x1111);
    }
  }
  // The same of levels: those of the first half of codes, zeros where another
  // code is, and of the second half. `prmt` has a selector's upper bit repeat
  // the byte's sign, which is zero.
  __device__ static void LookUp(uint32_t word, const ChainLevels& levels,
                                uint32_t* first, uint32_t* second) {
    // Codes of rows 0 to 7, then of 8 to 15.
    const uint32_t others = word ^ 0x88888888u;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      first[i] =
          RepeatingPermute(levels.bytes[0], levels.bytes[1], word >> 16 * i);
      second[i] =
          RepeatingPermute(levels.bytes[2], levels.bytes[3], others >> 16 * i);
    }
  }
  __device__ void AddGroup(int g, const int32_t (&part)[4],
                           const int32_t (&less)[4],
                           const ChainUnitOfX<Form>& x, float2 rows,
                           ChainSums& sums) const {
    const float2 scale = WidenPair<__half>(scales_[g].x);
    const float low = scale.x * (x.scale * rows.x);
    const float high = scale.y * (x.scale * rows.y);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float upper = __int_as_float(part[j]);
      const float lower = __int_as_float(part[2 + j]);
      const float of_upper =
          Form::kTable ? __int_as_float(less[j]) : kChainMagic;
      const float of_lower = Form::kTable     ? __int_as_float(less[2 + j])
                             : Form::kNibbles ? upper
                                              : kChainMagic;
      sums.products[j] = fmaf(low, upper - of_upper, sums.products[j]);
      sums.products[2 + j] = fmaf(high, lower - of_lower, sums.products[2 + j]);
    }
    if constexpr (Form::kSums) {
      const float2 min = WidenPair<__half>(scales_[g].y);  // or zeros
      sums.offsets[0] = fmaf(fmaf(-Form::kMiddle, scale.x, min.x),
                             x.sums[g] * rows.x, sums.offsets[0]);
      sums.offsets[1] = fmaf(fmaf(-Form::kMiddle, scale.y, min.y),
                             x.sums[g] * rows.y, sums.offsets[1]);
    }
  }

  uint32_t words_[kWords];
  uint2 scales_[Form::kGroups];
};

// Of a unit that lies as tensor copies bring it: 64 columns of all rows, then
// the others; of a row's 16 bytes number c at c ^ row % 8.
template <typename T>
class ChainUnit<ChainPlain<T>> {
 public:
  using Form = ChainPlain<T>;
  __device__ explicit ChainUnit(uint32_t unit) {
    const uint32_t lane = threadIdx.x % 32;
    row_ = unit + lane % 16 * 128;
    first_ = ((lane / 16) ^ (lane % 8)) * 16;
  }
  __device__ void AddTo(const ChainUnitOfX<Form>& x, const LevelsOf<Form>&,
                        ChainSums& sums, float2 = {1.0f, 1.0f}) const {
    float part[4] = {};
#pragma unroll
    for (int step = 0; step < kQuantColumns / 16; ++step) {
      uint32_t a[4];
      LoadMatrices(row_ + step / 4 * (kPlainUnitBytes / kPlainBoxes) +
                       (first_ ^ step % 4 * 32),
                   a);
      MultiplyFloats<T>(part, a, &x.words[2 * step]);
    }
    sums.products[0] = fmaf(x.scale, part[0], sums.products[0]);
    sums.products[2] = fmaf(x.scale, part[2], sums.products[2]);
  }

 private:
  uint32_t row_;
  uint32_t first_;
};

// StoreChainX's digits, and groups' sums. Of numbers times `inverse`.
template <class Form>
__device__ inline void StoreChainDigits(uint8_t* planes, uint32_t stride,
                                        float* facts, const float (&x)[4],
                                        float inverse, float scale) {
  constexpr uint32_t kMiddles = 0x00808080u;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint32_t t[4];
  int32_t sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t bits =
        __float_as_uint(fmaf(x[i], inverse, kChainMagic)) - kChainMagicBits;
    sum += static_cast<int32_t>(bits);
    t[i] = bits + kMiddles;
  }
  // Columns in the order in which codes are.
  const uint32_t second = t[Form::kNeighbours ? 1 : 2];
  const uint32_t third = t[Form::kNeighbours ? 2 : 1];
  const uint32_t low = __byte_perm(t[0], second, 0x5140);
  const uint32_t high = __byte_perm(third, t[3], 0x5140);
  const uint32_t digits[] = {
      __byte_perm(low, high, 0x5410), __byte_perm(low, high, 0x7632),
      __byte_perm(__byte_perm(t[0], second, 0x0062),
                  __byte_perm(third, t[3], 0x0062), 0x5410)};
#pragma unroll
  for (int d = 0; d < ChainPlanes(Form::kX); ++d) {
    *reinterpret_cast<uint32_t*>(planes + d * stride + lane * 4) =
        digits[d] ^ 0x80808080u;
  }
  if constexpr (!Form::kSums) return;
  if constexpr (Form::kGroups == 1) {
    sum = __reduce_add_sync(kChainLanes, sum);
    if (lane == 0) facts[1] = static_cast<float>(sum) * scale;
  } else {
#pragma unroll
    for (int lanes = 1; lanes < Form::kGroup / 4; lanes *= 2) {
      sum += __shfl_xor_sync(kChainLanes, sum, lanes);
    }
    if (lane % (Form::kGroup / 4) == 0) {
      facts[4 + lane / (Form::kGroup / 4)] = static_cast<float>(sum) * scale;
    }
  }
}

// A unit of a row of x, of which a lane has columns c, c + 1, c + 8 and c + 9,
// c being lane / 4 * 16 + lane % 4 * 2: digits to planes that begin at `planes`
// and lie `stride` bytes apart, what has to be known of it to `facts`. All
// lanes call it. A number that is not finite makes the unit's products NaN.
// The unit counts `weight` times.
template <class Form>
__device__ inline void StoreChainX(uint8_t* planes, uint32_t stride,
                                   float* facts, const float (&x)[4],
                                   float weight = 1.0f) {
  constexpr uint32_t kOne = 1u << 23;  // of exponents
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint32_t most = 0;  // magnitudes as integers: NaN is the largest
#pragma unroll
  for (int i = 0; i < 4; ++i) most = max(most, __float_as_uint(fabsf(x[i])));
  most = __reduce_max_sync(kChainLanes, most);
  // 2^e up to the largest, e at least -97: digits' numbers below 2^22 / 2^e,
  // floats below 2^15.
  constexpr uint32_t kUp = Form::kFloats ? 14 : 21;
  const uint32_t exponent = min(max(most & 0x7f800000u, 30 * kOne), 254 * kOne);
  const float inverse = __uint_as_float((254 + kUp) * kOne - exponent);
  const float scale =
      weight * (most >= 0x7f800000u ? __uint_as_float(0x7fffffffu)
                                    : __uint_as_float(exponent - kUp * kOne));
  if (lane == 0) *facts = scale;
  if constexpr (Form::kFloats) {
    auto* const at =
        reinterpret_cast<uint32_t*>(planes + lane / 4 * 32) + lane % 4;
    at[0] = NarrowPair<typename Form::Number>(x[0] * inverse, x[1] * inverse);
    at[4] = NarrowPair<typename Form::Number>(x[2] * inverse, x[3] * inverse);
  } else {
    StoreChainDigits<Form>(planes, stride, facts, x, inverse, scale);
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_CHAIN_CHAIN_UNIT_CUH_
