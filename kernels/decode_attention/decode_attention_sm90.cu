// decode_attention on Hopper. Source: split keys as in Flash-Decoding
// (pytorch.org/blog/flash-decoding, 2023).
//
// Grid: a cluster of 8 blocks for each KV head of a token, of 4 or 2 where
// tokens are more; blocks of 8 warps where each finds a multiprocessor of its
// own, otherwise of 4, two blocks a multiprocessor. Tiles of 16 keys go round:
// tile i to block i % 8, warp i / 8 % 4 (or 8). A warp loads its tiles into
// registers (decode_tile.cuh), two ahead, with no shared memory and no barrier
// in between.
//
// The new token's key and value are made by the warp whose tile they belong to,
// which needs neither to read them from the cache nor to wait until they are
// there. A block's warps merge through shared memory, and each block gets its
// share of the results from all: stores that count themselves at a barrier of
// the block they go to (to read them there took 3 us, and each barrier of the
// cluster 1 us). Barriers: one of the block, that of the cluster at the start
// in two halves, so that all blocks are there when stores come, and one that
// counts what came.
//
// Roofline: the cache's bytes; with few keys the latency of what follows one
// another: the plan, the block table, keys, sums.
#include <iterator>

#include "kernels/attention/sm90_ops.h"
#include "kernels/cuda_launch.cuh"
#include "kernels/decode_attention/decode_attention_sm90.h"
#include "kernels/decode_attention/decode_tile.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "memory/formatted_string.h"

namespace inlay {
namespace {

// Of a block, in shared memory.
template <int kDim, int kCluster, int kWarps>
struct BlockPart {
  // The new token's key and value, where a warp of the block makes them.
  DecodeToken<kDim> token;
  // Of each warp and query head; nothing where the maximum is -infinity.
  float2 sums[kWarps][kDecodeGroup];  // maximum, sum
  float4 numerators[kWarps][kDecodeGroup * kDecodeQuads<kDim>];
  // What each block of the cluster sends: its heads' maxima and sums, and its
  // numerators of the elements that are this block's.
  float4 all_sums[kCluster][kDecodeGroup];
  float4 all_numerators[kCluster][kDecodeGroup * kDim / 4 / kCluster];
  uint64_t arrived;
};

template <typename T, int kDim, bool kHalf, bool kNorm, int kCluster,
          int kWarps>
class Worker {
 public:
  using Part = BlockPart<kDim, kCluster, kWarps>;
  __device__ Worker(const DecodeShape& shape, Part& part,
                    const AttentionQuery& query, int row, int kv_head, int rank)
      : shape_(shape),
        part_(part),
        keys_(shape, query, kv_head),
        row_(row),
        kv_head_(kv_head),
        rank_(rank),
        warp_(static_cast<int>(threadIdx.x) / 32) {}

  __device__ void Run() {
    const int end = keys_.end();
    int tile = keys_.FirstOf(rank_ + kCluster * warp_, kRound);
    DecodeTile<kDim> a;
    DecodeTile<kDim> b;
    const int64_t block_a = keys_.BlockOf(tile);
    const int64_t block_b = keys_.BlockOf(tile + kRound);
    next_block_ = keys_.BlockOf(tile + 2 * kRound);
    keys_.Load(tile, block_a, a);
    keys_.Load(tile + kRound, block_b, b);
    WaitForPrevious();
    DecodeSums<T, kDim> sums;
    if (tile < end) {
      sums.Clear();
      MakeQueries((end - 1 - tile) % kRound == 0);
      keys_.Replace(tile, part_.token, a);
      keys_.Replace(tile + kRound, part_.token, b);
      while (true) {
        sums.Add(q_, keys_, tile, shape_.scale, a);
        if (tile + kRound >= end) break;
        LoadNext(tile + 2 * kRound, a);
        sums.Add(q_, keys_, tile + kRound, shape_.scale, b);
        if (tile + 2 * kRound >= end) break;
        LoadNext(tile + 3 * kRound, b);
        tile += 2 * kRound;
      }
    }
    sums.Leave(shape_.group, part_.sums[warp_], part_.numerators[warp_]);
  }

  // This block's part of the cluster's sums, to who adds them up.
  __device__ void Send() const {
    const uint32_t barrier = sm90::SharedAddress(&part_.arrived);
    const int quads = shape_.group * kDim / 4;  // of all heads
    const int share = quads / kCluster;
    for (int quad = static_cast<int>(threadIdx.x); quad < quads;
         quad += 32 * kWarps) {
      const int head = quad / (kDim / 4);
      float factors[kWarps];
      const float2 sum = MergeDecodeSums(&part_.sums[0][head], factors);
      float y[4] = {};
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        if (factors[w] == 0.0f) continue;  // never written, perhaps
        AddScaled(
            part_.numerators[w][head * kDecodeQuads<kDim> + quad % (kDim / 4)],
            factors[w], y);
      }
      StoreAt(sm90::SharedAddress(&part_.all_numerators[rank_][quad % share]),
              barrier, static_cast<unsigned>(quad / share), y);
      if (quad % (kDim / 4) < kCluster) {
        const float sums[4] = {sum.x, sum.y, 0.0f, 0.0f};
        StoreAt(sm90::SharedAddress(&part_.all_sums[rank_][head]), barrier,
                static_cast<unsigned>(quad % (kDim / 4)), sums);
      }
    }
  }

  // What a block gets from all by Send().
  __device__ static uint32_t SentBytes(int group) {
    return static_cast<uint32_t>(group * (kDim * 4 + kCluster * 16));
  }

  // The block's share of the heads' outputs.
  __device__ void Fold() const {
    const int share = shape_.group * kDim / 4 / kCluster;
    const int quad = static_cast<int>(threadIdx.x);
    if (quad >= share) return;
    Await(sm90::SharedAddress(&part_.arrived), 0);
    const int element = 4 * (rank_ * share + quad);
    const int head = element / kDim;
    const int query_head = kv_head_ * shape_.group + head;
    const float sink = shape_.sinks == nullptr
                           ? kDecodeNothing
                           : shape_.sinks[query_head] * kDecodeLog2E;
    float2 sums[kCluster];
    float highest = sink;
#pragma unroll
    for (int b = 0; b < kCluster; ++b) {
      const float4 sent = part_.all_sums[b][head];
      sums[b] = make_float2(sent.x, sent.y);
      highest = fmaxf(highest, sent.x);
    }
    float sum = exp2f(sink - highest);
    float y[4] = {};
#pragma unroll
    for (int b = 0; b < kCluster; ++b) {
      const float factor = exp2f(sums[b].x - highest);
      sum = fmaf(factor, sums[b].y, sum);
      AddScaled(part_.all_numerators[b][quad], factor, y);
    }
    const float factor = 1.0f / sum;
    T* const out = reinterpret_cast<T*>(shape_.out + row_ * shape_.out_stride) +
                   query_head * kDim + element % kDim;
    *reinterpret_cast<uint2*>(out) =
        make_uint2(NarrowPair<T>(y[0] * factor, y[1] * factor),
                   NarrowPair<T>(y[2] * factor, y[3] * factor));
  }

 private:
  static constexpr int kRound = kCluster * kWarps;
  __device__ static void AddScaled(const float4& x, float factor,
                                   float (&y)[4]) {
    y[0] = fmaf(factor, x.x, y[0]);
    y[1] = fmaf(factor, x.y, y[1]);
    y[2] = fmaf(factor, x.z, y[2]);
    y[3] = fmaf(factor, x.w, y[3]);
  }

  __device__ void LoadNext(int tile, DecodeTile<kDim>& to) {
    keys_.Load(tile, next_block_, to);
    next_block_ = keys_.BlockOf(tile + kRound);
    keys_.Replace(tile, part_.token, to);
  }

  // Queries, and the new key and value where they belong to this warp.
  __device__ void MakeQueries(bool has_new) {
    const DecodeHeads<kDim> heads(shape_, row_, kv_head_);
    heads.LoadQuery(q_);
    HeadPart<kDim> key;
    uint4 value[DecodeTile<kDim>::kSlabs];
    if (has_new) heads.LoadToken(key, value);
    const auto angles = heads.template LoadAngles<kHalf>();
    const int t = DecodeT();
    MakeHead<T, kDim, kHalf, kNorm>(shape_.norms[0], angles, t, q_);
    if (has_new) {
      MakeHead<T, kDim, kHalf, kNorm>(shape_.norms[1], angles, t, key);
      heads.Keep(key, value, part_.token);
    }
  }

  const DecodeShape& shape_;
  Part& part_;
  const DecodeKeys<kDim> keys_;
  const int row_;
  const int kv_head_;
  const int rank_;
  const int warp_;
  int64_t next_block_;  // of the tile to load next
  HeadPart<kDim> q_;
};

template <typename T, int kDim, bool kHalf, bool kNorm, int kCluster,
          int kWarps>
__global__ void __launch_bounds__(32 * kWarps, 8 / kWarps)
    DecodeAttention(const __grid_constant__ DecodeShape shape) {
  using Own = Worker<T, kDim, kHalf, kNorm, kCluster, kWarps>;
  __shared__ __align__(16) typename Own::Part part;
  LetNextBegin();
  const int rank = static_cast<int>(blockIdx.x) % kCluster;
  const int pair = static_cast<int>(blockIdx.x) / kCluster;
  const int row = pair / shape.num_kv_heads;
  const AttentionQuery query = shape.queries[row];
  if (query.kv_len == 0) {  // a row of nobody
    WaitForPrevious();
    return;
  }
  if (threadIdx.x == 0) {
    const uint32_t barrier = sm90::SharedAddress(&part.arrived);
    InitBarrier(barrier, 1);
    sm90::FenceBarrierInit();
    Expect(barrier, Own::SentBytes(shape.group));
  }
  __syncwarp();
  ClusterArrive();
  Own worker(shape, part, query, row, pair % shape.num_kv_heads, rank);
  worker.Run();
  __syncthreads();
  ClusterWait();
  worker.Send();
  worker.Fold();
}

template <typename T, int kDim, int kCluster, int kWarps>
absl::Status LaunchCut(const DecodeAttentionDesc& desc,
                       const DecodeShape& shape, int64_t clusters,
                       CudaStream& stream) {
  CudaGrid grid;
  grid.blocks = clusters * kCluster;
  grid.threads = 32 * kWarps;
  grid.cluster = kCluster;
  const bool half = desc.rope_kv.style == RopeStyle::kHalf;
  const bool norm = desc.rope_kv.q_norm;
  return LaunchCuda(
      "decode_attention", stream, grid,
      half   ? norm ? DecodeAttention<T, kDim, true, true, kCluster, kWarps>
                    : DecodeAttention<T, kDim, true, false, kCluster, kWarps>
        : norm ? DecodeAttention<T, kDim, false, true, kCluster, kWarps>
             : DecodeAttention<T, kDim, false, false, kCluster, kWarps>,
      shape);
}

template <typename T, int kDim, size_t kCut = 0>
absl::Status Launch(const DecodeAttentionDesc& desc, const DecodeShape& shape,
                    int64_t clusters, CudaStream& stream) {
  constexpr DecodeCut kOwn = kDecodeCuts[kCut];
  if constexpr (kCut + 1 < std::size(kDecodeCuts)) {
    if (!DecodeCutFits(kOwn, clusters, stream.num_sms())) {
      return Launch<T, kDim, kCut + 1>(desc, shape, clusters, stream);
    }
  }
  return LaunchCut<T, kDim, kOwn.cluster, kOwn.warps>(desc, shape, clusters,
                                                      stream);
}

template <typename T>
absl::Status LaunchDim(const DecodeAttentionDesc& desc,
                       const DecodeShape& shape, int64_t rows,
                       CudaStream& stream) {
  const int64_t clusters = rows * shape.num_kv_heads;
  return desc.attention.head_dim == 64
             ? Launch<T, 64>(desc, shape, clusters, stream)
             : Launch<T, 128>(desc, shape, clusters, stream);
}

}  // namespace

absl::Status RunDecodeAttentionSm90(const DecodeAttentionDesc& desc,
                                    const DecodeAttentionParams& params,
                                    Stream& stream) {
  const RopeKvParams& from = params.rope_kv;
  const AttentionPlan& plan = *params.plan;
  const AttentionDesc& attention = desc.attention;
  const DecodeShape shape = {
      reinterpret_cast<const AttentionQuery*>(plan.device +
                                              plan.layout.queries),
      reinterpret_cast<const int32_t*>(plan.device + plan.layout.blocks),
      from.qkv.data,
      params.out.data,
      static_cast<int64_t>(from.qkv.row_stride_bytes),
      static_cast<int64_t>(params.out.row_stride_bytes),
      attention.num_kv_heads,
      attention.num_heads / attention.num_kv_heads,
      attention.window,
      attention.scale * kDecodeLog2E,
      params.sinks,
      {from.q_norm, from.k_norm},
      from.cos,
      from.sin,
      from.slots,
      CudaKvLayer(from.kv)};
  if (from.kv.block_size % kDecodeTile != 0 || !shape.kv.IsVector()) {
    return absl::InvalidArgumentError(FormattedString(
        "decode_attention: block_size is %d; expected a multiple of %d and "
        "rows on 16 bytes",
        from.kv.block_size, kDecodeTile));
  }
  CudaStream& cuda = CudaStream::Of(stream);
  return attention.kv == DType::kF16
             ? LaunchDim<__half>(desc, shape, from.qkv.rows(), cuda)
             : LaunchDim<__nv_bfloat16>(desc, shape, from.qkv.rows(), cuda);
}

}  // namespace inlay
