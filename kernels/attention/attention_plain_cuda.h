// The device code of attention's plain row (attention_cuda_plain.cu), and of
// biased_attention's and disentangled_attention's. Included by .cu files alone.
//
// CTA: 128 threads; each runs its list of items (16 rows x a range of keys), 32
// keys at a time. Shared memory: the item's queries, a tile of keys and one of
// values, decoded to float32 (rows 4 floats apart from a multiple of 32 banks),
// scores, the rows' rescaling. Of heads above 256, keys and then values come
// through one tile, kSlab dimensions at a time: 77 KB, which every GPU has.
// Barriers: __syncthreads only.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_PLAIN_CUDA_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_PLAIN_CUDA_H_

#include "kernels/attention/attention_items_cuda.h"
#include "kernels/cuda_launch.cuh"
#include "kernels/kv_write/kv_load.cuh"

namespace inlay::attention_plain {

constexpr int kThreads = 128;
constexpr int kRows = kAttentionItemRows;
constexpr int kKeys = 32;
constexpr int kWarps = kThreads / 32;
// Dimensions of wide heads at a time.
constexpr int kSlab = 288;

// Shared memory, in floats; head_dim is the call's.
struct Tiles {
  __device__ Tiles(float* base, int head_dim, bool wide)
      : q_stride(head_dim + 4),
        stride(wide ? kSlab + 4 : q_stride),
        q(base),
        k(q + kRows * q_stride),
        v(wide ? k : k + kKeys * stride),
        scores(v + kKeys * stride),
        rescale(scores + kRows * kKeys),
        flag(reinterpret_cast<int*>(rescale + kRows)) {}

  int q_stride;
  int stride;
  float* q;
  float* k;
  float* v;
  float* scores;  // [kRows][kKeys]; then the weights
  float* rescale;
  int* flag;
};

inline size_t SharedBytes(int head_dim, bool wide) {
  const int tiles = wide ? kKeys * (kSlab + 4) : 2 * kKeys * (head_dim + 4);
  return sizeof(float) * static_cast<size_t>(kRows * (head_dim + 4) + tiles +
                                             kRows * kKeys + kRows + 1);
}

__device__ inline void LoadQueries(const AttentionItemArgs& args,
                                   const AttentionItem& item,
                                   const Tiles& tiles) {
  const int quads = args.head_dim / 4;
  for (int i = threadIdx.x; i < kRows * quads; i += kThreads) {
    const int row = i / quads;
    const int at = i % quads * 4;
    float4 x = {0.0f, 0.0f, 0.0f, 0.0f};
    if (row < item.num_rows) {
      const int of_sequence = item.row_begin + row;
      const char* q = static_cast<const char*>(args.q) +
                      (item.q_begin + of_sequence / args.group) * args.q_stride;
      x = LoadPlain4(
          args.activation, q,
          static_cast<int>(HeadOffset(args, item, of_sequence, args.head_dim)) +
              at);
    }
    *reinterpret_cast<float4*>(tiles.q + row * tiles.q_stride + at) = x;
  }
}

// Dimensions [first, first + count) of keys, values or both. Keys outside the
// item are zeros: what lies there is nobody's business.
template <bool kKey, bool kValue>
__device__ void LoadTile(const AttentionItemArgs& args,
                         const AttentionItem& item, int tile_begin, int first,
                         int count, const Tiles& tiles) {
  const int quads = count / 4;
  for (int i = threadIdx.x; i < kKeys * quads; i += kThreads) {
    const int key = i / quads;
    const int at = i % quads * 4;
    const int position = tile_begin + key;
    float4 k = {0.0f, 0.0f, 0.0f, 0.0f};
    float4 v = k;
    if (position >= item.key_begin && position < item.key_end) {
      const int2 place = PlaceOfKey(args, item, position);
      const int64_t row =
          (int64_t{item.kv_head} * args.kv.block_size + place.y) *
          args.kv_row_bytes;
      const std::byte* base =
          args.kv.base.base + place.x * args.kv.block_stride_bytes + row;
      if constexpr (kKey) {
        k = LoadKv4(args.kv.dtype, base + args.kv.k_offset_bytes, first + at);
      }
      if constexpr (kValue) {
        v = LoadKv4(args.kv.dtype, base + args.kv.v_offset_bytes, first + at);
      }
    }
    if constexpr (kKey) {
      *reinterpret_cast<float4*>(tiles.k + key * tiles.stride + at) = k;
    }
    if constexpr (kValue) {
      *reinterpret_cast<float4*>(tiles.v + key * tiles.stride + at) = v;
    }
  }
}

// What queries and keys are multiplied by besides: nothing. Not of wide heads.
struct NoTerms {
  // All threads call it, beside LoadTile and before the same barrier.
  __device__ void Load(const AttentionItemArgs& /*args*/,
                       const AttentionItem& /*item*/, int /*tile_begin*/,
                       const Tiles& /*tiles*/) const {}
  // Of key `key` of the tile and rows first, first + kWarps and so on of the
  // item: adds to their products.
  __device__ void AddTo(float (&/*sums*/)[kRows / kWarps], int /*first*/,
                        int /*key*/, int /*head_dim*/,
                        const Tiles& /*tiles*/) const {}
};

// What scores grow by besides: nothing.
struct NoBias : NoTerms {
  // `score` in units of log 2; `distance`: of the key behind the query.
  __device__ float Add(const AttentionItemArgs& /*args*/,
                       const AttentionItem& /*item*/, int /*row*/,
                       int /*distance*/, float score) const {
    return score;
  }
};

// Thread: one key, every fourth row. All threads call it: where kWide, the keys
// come in here.
template <bool kWide, typename Bias>
__device__ void Scores(const AttentionItemArgs& args, const AttentionItem& item,
                       const Bias& bias, int tile_begin, const Tiles& tiles) {
  const int key = threadIdx.x % kKeys;
  const int first = threadIdx.x / kKeys;
  float sums[kRows / kWarps] = {};
  const float* k = tiles.k + key * tiles.stride;
  const int step = kWide ? kSlab : args.head_dim;
  for (int slab = 0; slab < args.head_dim; slab += step) {
    const int count = min(step, args.head_dim - slab);
    if constexpr (kWide) {
      LoadTile<true, false>(args, item, tile_begin, slab, count, tiles);
      __syncthreads();
    }
    for (int d = 0; d < count; d += 4) {
      const float4 y = *reinterpret_cast<const float4*>(k + d);
#pragma unroll
      for (int i = 0; i < kRows / kWarps; ++i) {
        const float4 x = *reinterpret_cast<const float4*>(
            tiles.q + (first + i * kWarps) * tiles.q_stride + slab + d);
        sums[i] = fmaf(x.x, y.x, sums[i]);
        sums[i] = fmaf(x.y, y.y, sums[i]);
        sums[i] = fmaf(x.z, y.z, sums[i]);
        sums[i] = fmaf(x.w, y.w, sums[i]);
      }
    }
    if constexpr (kWide) __syncthreads();
  }
  if constexpr (!kWide) bias.AddTo(sums, first, key, args.head_dim, tiles);
#pragma unroll
  for (int i = 0; i < kRows / kWarps; ++i) {
    const int row = first + i * kWarps;
    const int of_sequence = item.row_begin + row;
    const AttentionRowKeys seen = MaskedKeysOfRow(args, item, of_sequence);
    const int position = tile_begin + key;
    float score = -INFINITY;
    if (position >= seen.begin && position < seen.end &&
        BitOf(args.mask, seen, position)) {
      const int distance = position - PositionOf(args, item, of_sequence);
      score = fmaf(SlopeOf(args, item, of_sequence),
                   -fabsf(static_cast<float>(distance)),
                   ScaledScore(args, sums[i]));
      score = bias.Add(args, item, of_sequence, distance, score);
    }
    tiles.scores[row * kKeys + key] = score;
  }
}

__device__ inline float WarpMax(float x) {
  for (int i = 16; i > 0; i /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, i));
  }
  return x;
}

__device__ inline float WarpSum(float x) {
  for (int i = 16; i > 0; i /= 2) x += __shfl_xor_sync(0xffffffffu, x, i);
  return x;
}

// The running maximum and sum of the rows of one warp (every fourth).
struct Softmax {
  float m[kRows / kWarps];
  float l[kRows / kWarps];

  __device__ void Clear() {
    for (int i = 0; i < kRows / kWarps; ++i) {
      m[i] = -INFINITY;
      l[i] = 0.0f;
    }
  }

  // Turns the tile's scores into weights; lane is key.
  __device__ void Add(const Tiles& tiles) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kRows / kWarps; ++i) {
      const int row = static_cast<int>(threadIdx.x) / 32 + i * kWarps;
      float& score = tiles.scores[row * kKeys + lane];
      const float top = fmaxf(m[i], WarpMax(score));
      const float base = top == -INFINITY ? 0.0f : top;
      const float rescale = Exp2(m[i] - base);
      const float weight = Exp2(score - base);
      m[i] = top;
      l[i] = l[i] * rescale + WarpSum(weight);
      score = weight;
      if (lane == 0) tiles.rescale[row] = rescale;
    }
  }
};

// Adds the tile's values, weighted, to the thread's sums `o` of its row. As
// Scores.
template <bool kWide, typename Rows>
__device__ void AddValues(const AttentionItemArgs& args,
                          const AttentionItem& item, int tile_begin,
                          const Tiles& tiles, const Rows& rows,
                          float4 (&o)[Rows::kQuads]) {
  const int step = kWide ? kSlab : args.value_dim;
  for (int slab = 0; slab < args.value_dim; slab += step) {
    const int count = min(step, args.value_dim - slab);
    if constexpr (kWide) {
      LoadTile<false, true>(args, item, tile_begin, slab, count, tiles);
      __syncthreads();
    }
    for (int key = 0; key < kKeys; ++key) {
      const float weight = tiles.scores[rows.row() * kKeys + key];
#pragma unroll
      for (int i = 0; i < Rows::kQuads; ++i) {
        const int at = rows.column(i) - slab;
        if (at >= count) break;
        if (kWide && at < 0) continue;
        const float4 v =
            *reinterpret_cast<const float4*>(tiles.v + key * tiles.stride + at);
        o[i] = {fmaf(weight, v.x, o[i].x), fmaf(weight, v.y, o[i].y),
                fmaf(weight, v.z, o[i].z), fmaf(weight, v.w, o[i].w)};
      }
    }
    __syncthreads();
  }
}

// The CTA's items. kDim: of values, at most. kWide: heads above 256.
template <int kDim, bool kWide, typename Bias>
__device__ __forceinline__ void RunItems(const AttentionItemArgs& args,
                                         const Bias& bias) {
  extern __shared__ float shared[];
  const Tiles tiles(shared, args.head_dim, kWide);
  using Rows = FoldedRows<kThreads, kDim, false, false, true>;
  const auto sync = [] { __syncthreads(); };
  WaitForPrevious();
  LetNextBegin();
  const int last = args.cta_items[blockIdx.x + 1];
  for (int i = args.cta_items[blockIdx.x]; i < last; ++i) {
    const AttentionItem item = args.items[i];
    __syncthreads();  // the item before is done with shared memory
    LoadQueries(args, item, tiles);
    ItemFold<Rows, decltype(sync)> fold(
        args, item, static_cast<int>(threadIdx.x), tiles.flag, nullptr, sync);
    Rows& rows = fold.rows();
    const int first_chunk = item.key_begin / item.chunk;
    for (int c = first_chunk; c * int64_t{item.chunk} < item.key_end; ++c) {
      const int begin = max(item.key_begin, c * item.chunk);
      const int end = static_cast<int>(
          min(int64_t{item.key_end}, (c + 1) * int64_t{item.chunk}));
      Softmax softmax;
      softmax.Clear();
      float4 o[Rows::kQuads] = {};
      for (int tile = begin / kKeys * kKeys; tile < end; tile += kKeys) {
        if constexpr (!kWide) {
          LoadTile<true, true>(args, item, tile, 0, args.head_dim, tiles);
          bias.Load(args, item, tile, tiles);
          __syncthreads();
        }
        Scores<kWide>(args, item, bias, tile, tiles);
        __syncthreads();
        softmax.Add(tiles);
        __syncthreads();
        const float rescale = tiles.rescale[rows.row()];
#pragma unroll
        for (float4& x : o) {
          x = {x.x * rescale, x.y * rescale, x.z * rescale, x.w * rescale};
        }
        AddValues<kWide>(args, item, tile, tiles, rows, o);
      }
      // Through shared memory: who has a row's sum is not who has its values.
#pragma unroll
      for (int r = 0; r < kRows / kWarps; ++r) {
        const int row = static_cast<int>(threadIdx.x) / 32 + r * kWarps;
        if (threadIdx.x % 32 != 0) continue;
        tiles.scores[2 * row] = softmax.m[r];
        tiles.scores[2 * row + 1] = softmax.l[r];
      }
      __syncthreads();
      fold.BeginChunk();
      rows.Fold(args.value_dim, tiles.scores[2 * rows.row()],
                tiles.scores[2 * rows.row() + 1], [&](int i) { return o[i]; });
      fold.EndChunk();
      __syncthreads();
    }
    fold.Finish();
  }
}

}  // namespace inlay::attention_plain

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_PLAIN_CUDA_H_
