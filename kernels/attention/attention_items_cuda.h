// What CUDA kernels that run AttentionItems share: the arguments, which keys a
// row sees, and the folding of partial results. A partial result of a row is
// (m, l, o): the largest score in units of log 2, the sum of 2^(score - m), and
// the values weighted so. Folding is not associative in floating point, so all
// of it happens in Fold(), in the order of the keys: results do not depend on
// which CTA ran which chunk. Source: FlashAttention-2 (arXiv:2307.08691), lean
// attention (arXiv:2405.10480).
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_CUDA_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_CUDA_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/attention/attention_plan.h"

namespace inlay {

inline constexpr float kLog2E = 1.4426950408889634f;

struct AttentionItemArgs {
  const int32_t* cta_items;
  const AttentionItem* items;
  const int32_t* blocks;
  int32_t* arrivals;
  float* partials;     // slots of kAttentionItemRows x (head_dim + 2)
  const float* sinks;  // or null
  const void* q;       // rows of num_heads * head_dim, q_stride bytes apart
  void* out;
  int64_t q_stride;
  int64_t out_stride;
  KvLayerView kv;
  int64_t kv_row_bytes;
  DType activation;
  int head_dim;
  int group;
  int window;
  bool causal;
  float scale;
  float softcap;
};

// What AttentionParams and AttentionPlan say, for a launch.
AttentionItemArgs MakeAttentionItemArgs(const AttentionDesc& desc,
                                        const AttentionParams& params);

#ifdef __CUDACC__

__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// `score` (a dot product) in units of log 2.
__device__ inline float ScaledScore(const AttentionItemArgs& args,
                                    float score) {
  if (args.softcap <= 0.0f) return score * (args.scale * kLog2E);
  // tanh(x) = 1 - 2 / (1 + e^2x), absolute error a few 2^-24.
  const float x = score * (args.scale / args.softcap);
  const float tanh = 1.0f - __fdividef(2.0f, 1.0f + Exp2(x * (2 * kLog2E)));
  return args.softcap * kLog2E * tanh;
}

// Keys [begin, end) that row `row` (of the sequence) of `item` sees.
__device__ inline int2 KeysOfRow(const AttentionItemArgs& args,
                                 const AttentionItem& item, int row) {
  const int token = row / args.group;
  const int end =
      args.causal ? item.kv_len - item.q_len + token + 1 : item.kv_len;
  return {args.window > 0 ? max(0, end - args.window) : 0, end};
}

__device__ inline int64_t HeadOffset(const AttentionItemArgs& args,
                                     const AttentionItem& item, int row) {
  return int64_t{item.kv_head * args.group + row % args.group} * args.head_dim;
}

__device__ inline float* Partial(const AttentionItemArgs& args, int slot) {
  return args.partials +
         int64_t{slot} * kAttentionItemRows * (args.head_dim + 2);
}

// The rows of an item spread over kThreads threads (of `thread`): each has one
// row and every kLanes-th pair of its columns. `head_dim` <= kDim, even.
template <int kThreads, int kDim>
class FoldedRows {
 public:
  static constexpr int kLanes = kThreads / kAttentionItemRows;
  static constexpr int kPairs = kDim / 2 / kLanes;

  __device__ explicit FoldedRows(int thread)
      : row_(thread / kLanes), lane_(thread % kLanes) {
    Clear();
  }

  __device__ void Clear() {
    m_ = -INFINITY;
    l_ = 0.0f;
#pragma unroll
    for (float2& o : o_) o = {0.0f, 0.0f};
  }

  __device__ int row() const { return row_; }
  __device__ int column(int pair) const { return 2 * (pair * kLanes + lane_); }

  // o(pair) gives float2. Everything is rounded where it says so: the compiler
  // must not fuse differently from one use to the next.
  template <typename Values>
  __device__ void Fold(float m, float l, Values o) {
    const float top = fmaxf(m_, m);
    const float base = top == -INFINITY ? 0.0f : top;
    const float mine = Exp2(m_ - base);
    const float theirs = Exp2(m - base);
    m_ = top;
    l_ = __fmaf_rn(l_, mine, __fmul_rn(l, theirs));
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const float2 value = o(i);
      o_[i].x = __fmaf_rn(o_[i].x, mine, __fmul_rn(value.x, theirs));
      o_[i].y = __fmaf_rn(o_[i].y, mine, __fmul_rn(value.y, theirs));
    }
  }

  __device__ void StorePartial(const AttentionItemArgs& args, int slot) const {
    float* to = Partial(args, slot);
    float* o = to + row_ * args.head_dim;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      if (column(i) < args.head_dim) {
        __stcg(reinterpret_cast<float2*>(o + column(i)), o_[i]);
      }
    }
    if (lane_ == 0) {
      float* ml = to + kAttentionItemRows * args.head_dim + 2 * row_;
      __stcg(reinterpret_cast<float2*>(ml), float2{m_, l_});
    }
  }

  // Folds `count` partial results, loading a few ahead of the arithmetic.
  __device__ void FoldPartials(const AttentionItemArgs& args, int slot,
                               int count) {
    constexpr int kAhead = kPairs <= 8 ? 4 : 2;
    for (int begin = 0; begin < count; begin += kAhead) {
      float2 ml[kAhead];
      float2 o[kAhead][kPairs];
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
        if (begin + s >= count) continue;
        const float* from = Partial(args, slot + begin + s);
        ml[s] = __ldcg(reinterpret_cast<const float2*>(
            from + kAttentionItemRows * args.head_dim + 2 * row_));
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {
          if (column(i) >= args.head_dim) continue;
          o[s][i] = __ldcg(reinterpret_cast<const float2*>(
              from + row_ * args.head_dim + column(i)));
        }
      }
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
        if (begin + s >= count) continue;
        Fold(ml[s].x, ml[s].y, [&](int i) { return o[s][i]; });
      }
    }
  }

  // Divides by the sum (the head's sink included) and writes the rows out.
  __device__ void WriteOut(const AttentionItemArgs& args,
                           const AttentionItem& item) {
    const int row = item.row_begin + row_;
    if (args.sinks != nullptr) {
      const float sink =
          args.sinks[item.kv_head * args.group + row % args.group];
      Fold(sink * kLog2E, 1.0f, [](int) { return float2{0.0f, 0.0f}; });
    }
    const float inverse = __frcp_rn(l_);
    auto* out = static_cast<char*>(args.out) +
                (item.q_begin + row / args.group) * args.out_stride;
    const int64_t offset = HeadOffset(args, item, row);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      if (column(i) >= args.head_dim) continue;
      const int64_t at = offset + column(i);
      const float2 value = {o_[i].x * inverse, o_[i].y * inverse};
      if (args.activation == DType::kF32) {
        reinterpret_cast<float2*>(out)[at / 2] = value;
      } else if (args.activation == DType::kF16) {
        reinterpret_cast<__half2*>(out)[at / 2] = __float22half2_rn(value);
      } else {
        reinterpret_cast<__nv_bfloat162*>(out)[at / 2] =
            __float22bfloat162_rn(value);
      }
    }
  }

 private:
  int row_;
  int lane_;
  float m_;
  float l_;
  float2 o_[kPairs];
};

// After the last chunk of `item`, folded into `rows` (or, where first_chunk >
// 0, kept apart already): writes the rows out, or leaves a partial result; who
// finishes the rows' last item folds all of them. `sync` is a barrier of the
// calling threads, `thread` 0 to kThreads - 1 among them, `flag` one shared
// int.
template <int kThreads, int kDim, typename Sync>
__device__ void FinishItem(const AttentionItemArgs& args,
                           const AttentionItem& item,
                           FoldedRows<kThreads, kDim>& rows, int thread,
                           int* flag, Sync sync) {
  const bool mine = rows.row() < item.num_rows;
  if (item.num_slots == 0) {
    if (mine) rows.WriteOut(args, item);
    return;
  }
  if (mine && item.first_chunk == 0) rows.StorePartial(args, item.slot_here);
  __threadfence();
  sync();
  if (thread == 0) {
    const int arrived = atomicAdd(args.arrivals + item.arrival, 1);
    *flag = arrived + 1 == item.num_items ? 1 : 0;
    // Nobody else comes: for the next launch.
    if (*flag != 0) args.arrivals[item.arrival] = 0;
    __threadfence();
  }
  sync();
  if (*flag == 0 || !mine) return;
  rows.Clear();
  rows.FoldPartials(args, item.slot, item.num_slots);
  rows.WriteOut(args, item);
}

#endif  // __CUDACC__

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_CUDA_H_
