// What both kernels of attention's tiles (attention_tiles_sm90.h,
// attention_tiles_mma.h) do with a thread's two rows, whose scores and sums lie
// as matrix instructions leave them: element i is row i / 2 % 2 's, column
// i / 4 * 8 + lane % 4 * 2 + i % 2. Scores become weights, and sums the result.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_TILES_ROWS_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_TILES_ROWS_H_

#include "kernels/attention/attention_tiles_mask.h"
#include "kernels/attention/sm90_ops.h"
#include "kernels/cuda_transpose.cuh"

namespace inlay::tiles {

// The running maximum may lag behind by this much, in units of log 2: weights
// grow to 2^8, and the numerator is rescaled seldom.
constexpr float kLag = 8.0f;

// Where there is a softcap.
template <typename Args, int kCount>
__device__ __forceinline__ void CapScores(const Args& args,
                                          float (&s)[kCount]) {
  if (args.softcap <= 0.0f) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float e = Exp2(s[i] * args.cap_scale);
    s[i] = args.softcap * (1.0f - __fdividef(2.0f, 1.0f + e));
  }
}

// Scores to weights; `scale`: of scores to units of log 2, m: the rows' maxima,
// l: this thread's part of their sums. `rescale`: what the rows' numerators
// must be multiplied with; null where there is none yet.
template <int kCount>
__device__ __forceinline__ void MakeWeights(float scale, float (&s)[kCount],
                                            float (&m)[2], float (&l)[2],
                                            float* rescale) {
  float top[2] = {m[0], m[1]};
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    top[i / 2 % 2] = fmaxf(top[i / 2 % 2], s[i]);
  }
  float base[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 1));
    top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 2));
    // Each row for itself: it must not matter beside which rows it lies.
    const bool grow = top[r] * scale > m[r] * scale + kLag;
    const float factor = grow ? Exp2((m[r] - top[r]) * scale) : 1.0f;
    if (grow) m[r] = top[r];
    if (rescale != nullptr) rescale[r] = factor;
    l[r] *= factor;
    base[r] = m[r] == -INFINITY ? 0.0f : m[r] * scale;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    s[i] = Exp2(fmaf(s[i], scale, -base[i / 2 % 2]));
    l[i / 2 % 2] += s[i];
  }
}

// Divides row r's sums `o` by `l`, the whole row's, and the head's sink, and
// writes them out where the row exists. `row`: the tile's; the warp together.
template <typename T, bool kMasked, int kDim, typename Args, typename Rows>
__device__ __forceinline__ void WriteRow(const Args& args, const TileMask& mask,
                                         const Rows& rows,
                                         const AttentionTile& tile, int kv_head,
                                         int row, int r, int lane, float m,
                                         float l, const float (&o)[kDim / 2]) {
  const int token = row / args.group;
  const int head = kv_head * args.group + row % args.group;
  const bool valid = token < tile.num_tokens;
  if (args.sinks != nullptr && valid) {
    const float scale = rows.Scale(args, mask);
    l += Exp2(args.sinks[head] * kLog2E - m * scale);
  }
  const float inverse = kMasked && l == 0.0f ? 0.0f : __frcp_rn(l);
  char* out = static_cast<char*>(args.out) +
              (tile.q_row + token) * args.out_stride + int64_t{head} * kDim * 2;
  // Four lanes have a row; among four blocks of 8 columns, each ends up with
  // one block whole.
#pragma unroll
  for (int quad = 0; quad < kDim / 32; ++quad) {
    uint32_t x[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int at = (quad * 4 + j) * 4 + 2 * r;
      x[j] = sm90::Pack<T>(o[at] * inverse, o[at + 1] * inverse);
    }
    TransposeQuad(x, lane % 4);
    if (valid) {
      *reinterpret_cast<uint4*>(out + quad * 64 + lane % 4 * 16) = {x[0], x[1],
                                                                    x[2], x[3]};
    }
  }
#pragma unroll
  for (int j = kDim / 32 * 4; j < kDim / 8; ++j) {
    const uint32_t x = sm90::Pack<T>(o[4 * j + 2 * r] * inverse,
                                     o[4 * j + 2 * r + 1] * inverse);
    if (valid) {
      *reinterpret_cast<uint32_t*>(out + j * 16 + lane % 4 * 4) = x;
    }
  }
}

}  // namespace inlay::tiles

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_TILES_ROWS_H_
