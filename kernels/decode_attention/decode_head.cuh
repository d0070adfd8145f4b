// A head of q or k as lanes of decode_attention's kernel have it, and what
// rope_kv makes of it. Source of the bits: rms_norm.cuh, rope.cuh.
#ifndef INLAY_KERNELS_DECODE_ATTENTION_DECODE_HEAD_CUH_
#define INLAY_KERNELS_DECODE_ATTENTION_DECODE_HEAD_CUH_

#include "kernels/cuda_float.cuh"
#include "kernels/rms_norm/rms_norm.cuh"
#include "kernels/rope/rope.cuh"
#include "kernels/rope_kv/rope_kv.h"

namespace inlay {

__device__ inline uint4 LoadCold(const void* from) {
  uint4 x;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(from));
  return x;
}

// What a lane has of a head: elements 32 i + 8 (lane % 4) + 0..7.
template <int kDim>
struct HeadPart {
  static constexpr int kVectors = kDim / 32;
  __device__ void Load(const std::byte* head, int t) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) at[i] = LoadCold(head + 64 * i + 16 * t);
  }
  uint4 at[kVectors];
};

// Cosines and sines of a lane's part of a head.
template <int kDim, bool kHalf>
struct Angles {
  static constexpr int kFloats = kDim / 8;  // of a lane
  // Of a row of kDim / 2 each.
  __device__ Angles(const float* cosines, const float* sines, int t) {
    Load(cosines, t, cos);
    Load(sines, t, sin);
  }
  __device__ static void Load(const float* from, int t, float (&to)[kFloats]) {
    constexpr int kStep = kHalf ? 8 : 4;
#pragma unroll
    for (int i = 0; i < kFloats / kStep; ++i) {
      float part[kStep];
      LoadFloats<kStep>(from + (kHalf ? 32 * i + 8 * t : 16 * i + 4 * t), part);
#pragma unroll
      for (int j = 0; j < kStep; ++j) to[i * kStep + j] = part[j];
    }
  }
  float cos[kFloats];
  float sin[kFloats];
};

template <typename T>
__device__ float Rounded(float x) {
  return ToFloat(FromFloat<T>(x));
}

// `head`, normalised and turned: the bits that rope_kv gives.
template <typename T, int kDim, bool kHalf, bool kNorm>
__device__ void MakeHead(const HeadNorm& norm,
                         const Angles<kDim, kHalf>& angles, int t,
                         HeadPart<kDim>& head) {
  constexpr int kVectors = HeadPart<kDim>::kVectors;
  float x[kVectors][8];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const uint32_t words[] = {head.at[i].x, head.at[i].y, head.at[i].z,
                              head.at[i].w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 pair = WidenPair<T>(words[j]);
      x[i][2 * j] = pair.x;
      x[i][2 * j + 1] = pair.y;
    }
  }
  if constexpr (kNorm) {
    // rope_kv has 8 elements a lane and adds up lanes that are kDim / 16 apart
    // first.
    float squares[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) squares[i] = AddSquares(x[i], 0.0f);
#pragma unroll
    for (int step = kVectors / 2; step > 0; step /= 2) {
#pragma unroll
      for (int i = 0; i < step; ++i) squares[i] += squares[i + step];
    }
    squares[0] += __shfl_xor_sync(0xffffffffu, squares[0], 2);
    squares[0] += __shfl_xor_sync(0xffffffffu, squares[0], 1);
    const float factor = RmsNormFactor(squares[0], kDim, norm.epsilon);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      RmsNormScale(x[i], factor, norm.weight, 32 * i + 8 * t);
#pragma unroll
      for (int j = 0; j < 8; ++j) x[i][j] = Rounded<T>(x[i][j]);
    }
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if constexpr (kHalf) {
        if (i < kVectors / 2) {
          TurnPair(x[i][j], x[i + kVectors / 2][j], angles.cos[i * 8 + j],
                   angles.sin[i * 8 + j]);
        }
      } else if (j % 2 == 0) {
        TurnPair(x[i][j], x[i][j + 1], angles.cos[i * 4 + j / 2],
                 angles.sin[i * 4 + j / 2]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    head.at[i] = make_uint4(
        NarrowPair<T>(x[i][0], x[i][1]), NarrowPair<T>(x[i][2], x[i][3]),
        NarrowPair<T>(x[i][4], x[i][5]), NarrowPair<T>(x[i][6], x[i][7]));
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_DECODE_ATTENTION_DECODE_HEAD_CUH_
