// decode_attention on Hopper. Sources: split keys as in Flash-Decoding
// (pytorch.org/blog/flash-decoding, 2023); fragments: PTX ISA, mma.m16n8k16.
//
// Grid: a cluster of 8 blocks of 4 warps for each KV head of each token, two
// blocks a multiprocessor. Tiles of 16 keys go round: tile i to block i % 8,
// warp i / 8 % 4. A warp loads its tiles into registers as they lie in the
// cache, two ahead, with no shared memory and no barrier in between: the
// operands of mma.m16n8k16 need not have the elements of a row in their order,
// only all rows in the same one.
//   scores   rows: query heads (8 of 16 are used), columns: keys. A lane has of
//            key lane / 4 the elements 32 i + 8 (lane % 4) + 0..7, 16 bytes
//            each, and of query head lane / 4 the same. So a pair that rotary
//            positions turn lies within a lane, in both styles.
//   values   a lane has of keys 2 t, 2 t + 1, 2 t + 8, 2 t + 9, t = lane % 4,
//            the elements 64 i + 8 (lane / 4) + 0..7; a byte permutation makes
//            two keys' elements a register, 8 (lane / 4) + j being column j of
//            one product of eight.
// The new token's key and value are made by the warp whose tile they belong to,
// which needs neither to read them from the cache nor to wait until they are
// there. Scores, sums and numerators are float32, weights have the cache's
// type. A block's warps merge through shared memory, and each block gets an
// eighth of the results from all: stores that count themselves at a barrier of
// the block they go to (to read them there took 3 us, and each barrier of the
// cluster 1 us). Barriers: one of the block, that of the cluster at the start
// in two halves, so that all blocks are there when stores come, and one that
// counts what came.
// Roofline: the cache's bytes; with few keys the latency of what follows one
// another: the plan, the block table, keys, sums.
#include "kernels/attention/attention_plan.h"
#include "kernels/attention/sm90_ops.h"
#include "kernels/cuda_launch.cuh"
#include "kernels/decode_attention/decode_attention_sm90.h"
#include "kernels/decode_attention/decode_head.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/kv_write/kv_row.cuh"
#include "memory/formatted_string.h"

namespace inlay {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kTile = 16;  // keys
constexpr int kRound = kDecodeCluster * kWarps;
constexpr float kNothing = -INFINITY;
constexpr float kLog2E = 1.44269504f;

struct Args {
  const AttentionQuery* queries;
  const int32_t* blocks;
  const std::byte* qkv;
  std::byte* out;
  int64_t qkv_stride;  // bytes
  int64_t out_stride;
  int num_kv_heads;
  int group;
  int window;
  float scale;  // of scores in units of log 2
  const float* sinks;
  HeadNorm norms[2];  // of q, of k
  const float* cos;
  const float* sin;
  const int64_t* slots;
  CudaKvLayer kv;
};

// A lane's part of 16 keys and of their values.
template <int kDim>
struct Tile {
  static constexpr int kSlabs = kDim / 64;
  HeadPart<kDim> k[2];  // keys g and g + 8, g = lane / 4
  uint4 v[4][kSlabs];   // keys 2 t, 2 t + 1, 2 t + 8, 2 t + 9
};

// Key j of a tile, among those whose values a lane has.
__device__ inline int ValueKey(int t, int j) {
  return j / 2 * 8 + 2 * t + j % 2;
}

// Of a block, in shared memory.
template <int kDim>
struct BlockPart {
  // The new token's key and value, where a warp of the block makes them.
  uint4 key[kDim / 8];
  uint4 value[kDim / 8];
  // Of each warp and query head; nothing where the maximum is -infinity.
  float2 sums[kWarps][kDecodeGroup];  // maximum, sum
  float4 numerators[kWarps][kDecodeGroup][kDim / 4];
  // What each block of the cluster sends: its heads' maxima and sums, and its
  // numerators of the elements that are this block's.
  float4 all_sums[kDecodeCluster][kDecodeGroup];
  float4 all_numerators[kDecodeCluster]
                       [kDecodeGroup * kDim / 4 / kDecodeCluster];
  uint64_t arrived;
};

template <typename T, int kDim, bool kHalf, bool kNorm>
class Worker {
 public:
  __device__ Worker(const Args& args, BlockPart<kDim>& part,
                    const AttentionQuery& query, int row, int kv_head, int rank)
      : args_(args),
        part_(part),
        query_(query),
        row_(row),
        kv_head_(kv_head),
        rank_(rank),
        warp_(static_cast<int>(threadIdx.x) / 32),
        g_(static_cast<int>(threadIdx.x) % 32 / 4),
        t_(static_cast<int>(threadIdx.x) % 4),
        first_key_(args.window > 0 ? max(query.kv_len - args.window, 0) : 0),
        end_((query.kv_len + kTile - 1) / kTile),
        tiles_a_block_(args.kv.block_size / kTile) {}

  __device__ void Run() {
    const int first = first_key_ / kTile;
    const int mine = rank_ + kDecodeCluster * warp_;
    int tile = first + (mine - first % kRound + kRound) % kRound;
    Tile<kDim> a;
    Tile<kDim> b;
    const int64_t block_a = BlockOf(tile);
    const int64_t block_b = BlockOf(tile + kRound);
    next_block_ = BlockOf(tile + 2 * kRound);
    Load(tile, block_a, a);
    Load(tile + kRound, block_b, b);
    WaitForPrevious();
    if (tile < end_) {
      MakeQueries((end_ - 1 - tile) % kRound == 0);
      Replace(tile, a);
      Replace(tile + kRound, b);
      while (true) {
        Add(tile, a);
        if (tile + kRound >= end_) break;
        LoadNext(tile + 2 * kRound, a);
        Add(tile + kRound, b);
        if (tile + 2 * kRound >= end_) break;
        LoadNext(tile + 3 * kRound, b);
        tile += 2 * kRound;
      }
    }
    Leave();
  }

  // This block's part of the cluster's sums, to who adds them up.
  __device__ void Send() const {
    const uint32_t barrier = sm90::SharedAddress(&part_.arrived);
    const int quads = args_.group * kDim / 4;  // of all heads
    const int share = quads / kDecodeCluster;
    for (int quad = static_cast<int>(threadIdx.x); quad < quads;
         quad += kThreads) {
      const int head = quad / (kDim / 4);
      float factors[kWarps];
      const float2 sum = Merge(head, factors);
      float y[4] = {};
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        if (factors[w] == 0.0f) continue;  // never written, perhaps
        AddScaled(part_.numerators[w][head][quad % (kDim / 4)], factors[w], y);
      }
      StoreAt(sm90::SharedAddress(&part_.all_numerators[rank_][quad % share]),
              barrier, static_cast<unsigned>(quad / share), y);
      if (quad % (kDim / 4) < kDecodeCluster) {
        const float sums[4] = {sum.x, sum.y, 0.0f, 0.0f};
        StoreAt(sm90::SharedAddress(&part_.all_sums[rank_][head]), barrier,
                static_cast<unsigned>(quad % (kDim / 4)), sums);
      }
    }
  }

  // What a block gets from all by Send().
  __device__ static uint32_t SentBytes(int group) {
    return static_cast<uint32_t>(group * (kDim * 4 + kDecodeCluster * 16));
  }

  // An eighth of the heads' outputs.
  __device__ void Fold() const {
    const int share = args_.group * kDim / 4 / kDecodeCluster;
    const int quad = static_cast<int>(threadIdx.x);
    if (quad >= share) return;
    Await(sm90::SharedAddress(&part_.arrived), 0);
    const int element = 4 * (rank_ * share + quad);
    const int head = element / kDim;
    const int query_head = kv_head_ * args_.group + head;
    const float sink =
        args_.sinks == nullptr ? kNothing : args_.sinks[query_head] * kLog2E;
    float2 sums[kDecodeCluster];
    float highest = sink;
#pragma unroll
    for (int b = 0; b < kDecodeCluster; ++b) {
      const float4 sent = part_.all_sums[b][head];
      sums[b] = make_float2(sent.x, sent.y);
      highest = fmaxf(highest, sent.x);
    }
    float sum = exp2f(sink - highest);
    float y[4] = {};
#pragma unroll
    for (int b = 0; b < kDecodeCluster; ++b) {
      const float factor = exp2f(sums[b].x - highest);
      sum = fmaf(factor, sums[b].y, sum);
      AddScaled(part_.all_numerators[b][quad], factor, y);
    }
    const float factor = 1.0f / sum;
    T* const out = reinterpret_cast<T*>(args_.out + row_ * args_.out_stride) +
                   query_head * kDim + element % kDim;
    *reinterpret_cast<uint2*>(out) =
        make_uint2(NarrowPair<T>(y[0] * factor, y[1] * factor),
                   NarrowPair<T>(y[2] * factor, y[3] * factor));
  }

 private:
  __device__ static void AddScaled(const float4& x, float factor,
                                   float (&y)[4]) {
    y[0] = fmaf(factor, x.x, y[0]);
    y[1] = fmaf(factor, x.y, y[1]);
    y[2] = fmaf(factor, x.z, y[2]);
    y[3] = fmaf(factor, x.w, y[3]);
  }

  // Maximum and sum of a head's keys of the block, and what each warp's
  // numerator counts.
  __device__ float2 Merge(int head, float (&factors)[kWarps]) const {
    float2 merged = {kNothing, 0.0f};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      merged.x = fmaxf(merged.x, part_.sums[w][head].x);
    }
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float2 sum = part_.sums[w][head];
      factors[w] = sum.x == kNothing ? 0.0f : exp2f(sum.x - merged.x);
      merged.y = fmaf(factors[w], sum.y, merged.y);
    }
    return merged;
  }

  // Beyond the last tile nothing is loaded.
  __device__ int64_t BlockOf(int tile) const {
    if (tile >= end_) return 0;
    return args_.blocks[query_.blocks_begin + tile / tiles_a_block_];
  }

  __device__ void LoadNext(int tile, Tile<kDim>& to) {
    Load(tile, next_block_, to);
    next_block_ = BlockOf(tile + kRound);
    Replace(tile, to);
  }

  __device__ void Load(int tile, int64_t block, Tile<kDim>& to) const {
    if (tile >= end_) return;
    const int slot = tile % tiles_a_block_ * kTile;
    const std::byte* const base =
        args_.kv.base + block * args_.kv.block_stride +
        (int64_t{kv_head_} * args_.kv.block_size + slot) * (2 * kDim);
    const std::byte* const keys = base + args_.kv.key_offset;
    const std::byte* const values = base + args_.kv.value_offset;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      to.k[half].Load(keys + (half * 8 + g_) * 2 * kDim, t_);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = 0; i < Tile<kDim>::kSlabs; ++i) {
        to.v[j][i] =
            LoadCold(values + ValueKey(t_, j) * 2 * kDim + 128 * i + 16 * g_);
      }
    }
  }

  // Queries, and the new key and value where they belong to this warp.
  __device__ void MakeQueries(bool has_new) {
    const std::byte* const row = args_.qkv + row_ * args_.qkv_stride;
    const int heads = args_.group * args_.num_kv_heads;
    // Rows without a head repeat the last one; nobody reads what they give.
    const int head = kv_head_ * args_.group + min(g_, args_.group - 1);
    q_.Load(row + head * 2 * kDim, t_);
    HeadPart<kDim> key;
    uint4 value[Tile<kDim>::kSlabs];
    if (has_new) {
      const std::byte* const from = row + (heads + kv_head_) * 2 * kDim;
      key.Load(from, t_);
#pragma unroll
      for (int i = 0; i < Tile<kDim>::kSlabs; ++i) {
        value[i] =
            LoadCold(from + args_.num_kv_heads * 2 * kDim + 128 * i + 16 * g_);
      }
    }
    const Angles<kDim, kHalf> angles(args_.cos + int64_t{row_} * (kDim / 2),
                                     args_.sin + int64_t{row_} * (kDim / 2),
                                     t_);
    MakeHead<T, kDim, kHalf, kNorm>(args_.norms[0], angles, t_, q_);
    if (has_new) {
      MakeHead<T, kDim, kHalf, kNorm>(args_.norms[1], angles, t_, key);
      Keep(key, value);
    }
  }

  // The new key and value to the cache, and to where Replace finds them.
  __device__ void Keep(const HeadPart<kDim>& key,
                       const uint4 (&value)[Tile<kDim>::kSlabs]) const {
    const int64_t slot = args_.slots[row_];
    if (g_ == 0) {
      std::byte* const to =
          args_.kv.Row(false, max(slot, int64_t{0}), kv_head_);
#pragma unroll
      for (int i = 0; i < kDim / 32; ++i) {
        part_.key[4 * i + t_] = key.at[i];
        if (slot >= 0) {
          *reinterpret_cast<uint4*>(to + 64 * i + 16 * t_) = key.at[i];
        }
      }
    }
    if (t_ == 0) {
      std::byte* const to = args_.kv.Row(true, max(slot, int64_t{0}), kv_head_);
#pragma unroll
      for (int i = 0; i < Tile<kDim>::kSlabs; ++i) {
        part_.value[8 * i + g_] = value[i];
        if (slot >= 0) {
          *reinterpret_cast<uint4*>(to + 128 * i + 16 * g_) = value[i];
        }
      }
    }
    __syncwarp();
  }

  // The new key and value into the tile that they belong to.
  __device__ void Replace(int tile, Tile<kDim>& in) const {
    if (tile != end_ - 1) return;
    const int key = (query_.kv_len - 1) % kTile;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (key != half * 8 + g_) continue;
#pragma unroll
      for (int i = 0; i < kDim / 32; ++i) {
        in.k[half].at[i] = part_.key[4 * i + t_];
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (key != ValueKey(t_, j)) continue;
#pragma unroll
      for (int i = 0; i < Tile<kDim>::kSlabs; ++i) {
        in.v[j][i] = part_.value[8 * i + g_];
      }
    }
  }

  __device__ void Add(int tile, Tile<kDim>& keys) {
    float s[2][4] = {};
#pragma unroll
    for (int i = 0; i < kDim / 32; ++i) {
      const uint32_t low[4] = {q_.at[i].x, 0, q_.at[i].y, 0};
      const uint32_t high[4] = {q_.at[i].z, 0, q_.at[i].w, 0};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4& k = keys.k[half].at[i];
        sm90::Mma16816<T>(s[half], low, k.x, k.y);
        sm90::Mma16816<T>(s[half], high, k.z, k.w);
      }
    }
    const int first = tile * kTile;
    const bool whole = first >= first_key_ && first + kTile <= query_.kv_len;
    if (!whole) HideUnseen(first, s, keys);
    float highest = highest_;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        s[half][j] *= args_.scale;
        highest = fmaxf(highest, s[half][j]);
      }
    }
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
    const float factor = exp2f(highest_ - highest);
    highest_ = highest;
    sum_ *= factor;
    uint32_t weights[4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float low = exp2f(s[half][0] - highest);
      const float high = exp2f(s[half][1] - highest);
      sum_ += low + high;
      weights[2 * half] = sm90::Pack<T>(low, high);
    }
#pragma unroll
    for (int i = 0; i < Tile<kDim>::kSlabs; ++i) {
      const uint32_t v[4][4] = {
          {keys.v[0][i].x, keys.v[0][i].y, keys.v[0][i].z, keys.v[0][i].w},
          {keys.v[1][i].x, keys.v[1][i].y, keys.v[1][i].z, keys.v[1][i].w},
          {keys.v[2][i].x, keys.v[2][i].y, keys.v[2][i].z, keys.v[2][i].w},
          {keys.v[3][i].x, keys.v[3][i].y, keys.v[3][i].z, keys.v[3][i].w}};
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const uint32_t pick = j % 2 == 0 ? 0x5410 : 0x7632;
        float(&o)[4] = numerator_[i][j];
        o[0] *= factor;
        o[1] *= factor;
        sm90::Mma16816<T>(o, weights,
                          __byte_perm(v[0][j / 2], v[1][j / 2], pick),
                          __byte_perm(v[2][j / 2], v[3][j / 2], pick));
      }
    }
  }

  // Nobody says what lies where there is no key that the query sees, and zero
  // times NaN is NaN.
  __device__ void HideUnseen(int first, float (&s)[2][4],
                             Tile<kDim>& keys) const {
    const auto unseen = [&](int key) {
      return first + key < first_key_ || first + key >= query_.kv_len;
    };
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (!unseen(ValueKey(t_, j))) continue;
      s[j / 2][j % 2] = kNothing;
#pragma unroll
      for (int i = 0; i < Tile<kDim>::kSlabs; ++i) {
        keys.v[j][i] = make_uint4(0, 0, 0, 0);
      }
    }
  }

  __device__ void Leave() {
    sum_ += __shfl_xor_sync(0xffffffffu, sum_, 1);
    sum_ += __shfl_xor_sync(0xffffffffu, sum_, 2);
    if (g_ >= args_.group) return;
    if (t_ == 0) part_.sums[warp_][g_] = make_float2(highest_, sum_);
    if (highest_ == kNothing) return;
#pragma unroll
    for (int i = 0; i < Tile<kDim>::kSlabs; ++i) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        // Column 2 t + c of each product is element 8 (2 t + c) + j.
        float4* const to =
            &part_.numerators[warp_][g_][16 * i + 4 * t_ + 2 * c];
#pragma unroll
        for (int j = 0; j < 8; j += 4) {
          to[j / 4] =
              make_float4(numerator_[i][j][c], numerator_[i][j + 1][c],
                          numerator_[i][j + 2][c], numerator_[i][j + 3][c]);
        }
      }
    }
  }

  const Args& args_;
  BlockPart<kDim>& part_;
  const AttentionQuery query_;
  const int row_;
  const int kv_head_;
  const int rank_;
  const int warp_;
  const int g_;
  const int t_;
  const int first_key_;
  const int end_;  // tiles
  const int tiles_a_block_;
  int64_t next_block_;  // of the tile to load next
  HeadPart<kDim> q_;
  HeadPart<kDim> new_key_;
  uint4 new_value_[Tile<kDim>::kSlabs];
  float highest_ = kNothing;
  float sum_ = 0.0f;
  float numerator_[Tile<kDim>::kSlabs][8][4] = {};
};

template <typename T, int kDim, bool kHalf, bool kNorm>
__global__ void __launch_bounds__(kThreads, 2)
    DecodeAttention(const __grid_constant__ Args args) {
  using Part = Worker<T, kDim, kHalf, kNorm>;
  __shared__ __align__(16) BlockPart<kDim> part;
  LetNextBegin();
  const int rank = static_cast<int>(blockIdx.x) % kDecodeCluster;
  const int pair = static_cast<int>(blockIdx.x) / kDecodeCluster;
  const int row = pair / args.num_kv_heads;
  const AttentionQuery query = args.queries[row];
  if (query.kv_len == 0) {  // a row of nobody
    WaitForPrevious();
    return;
  }
  if (threadIdx.x == 0) {
    const uint32_t barrier = sm90::SharedAddress(&part.arrived);
    InitBarrier(barrier, 1);
    sm90::FenceBarrierInit();
    Expect(barrier, Part::SentBytes(args.group));
  }
  __syncwarp();
  ClusterArrive();
  Part worker(args, part, query, row, pair % args.num_kv_heads, rank);
  worker.Run();
  __syncthreads();
  ClusterWait();
  worker.Send();
  worker.Fold();
}

template <typename T, int kDim>
absl::Status Launch(const DecodeAttentionDesc& desc, const Args& args,
                    int64_t rows, CudaStream& stream) {
  CudaGrid grid;
  grid.blocks = rows * args.num_kv_heads * kDecodeCluster;
  grid.threads = kThreads;
  grid.cluster = kDecodeCluster;
  const bool half = desc.rope_kv.style == RopeStyle::kHalf;
  const bool norm = desc.rope_kv.q_norm;
  return LaunchCuda("decode_attention", stream, grid,
                    half   ? norm ? DecodeAttention<T, kDim, true, true>
                                  : DecodeAttention<T, kDim, true, false>
                      : norm ? DecodeAttention<T, kDim, false, true>
                           : DecodeAttention<T, kDim, false, false>,
                    args);
}

template <typename T>
absl::Status LaunchDim(const DecodeAttentionDesc& desc, const Args& args,
                       int64_t rows, CudaStream& stream) {
  return desc.attention.head_dim == 64
             ? Launch<T, 64>(desc, args, rows, stream)
             : Launch<T, 128>(desc, args, rows, stream);
}

}  // namespace

absl::Status RunDecodeAttentionSm90(const DecodeAttentionDesc& desc,
                                    const DecodeAttentionParams& params,
                                    Stream& stream) {
  const RopeKvParams& from = params.rope_kv;
  const AttentionPlan& plan = *params.plan;
  const AttentionDesc& attention = desc.attention;
  Args args = {
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
      attention.scale * kLog2E,
      params.sinks,
      {from.q_norm, from.k_norm},
      from.cos,
      from.sin,
      from.slots,
      CudaKvLayer(from.kv)};
  if (from.kv.block_size % kTile != 0 || !args.kv.IsVector()) {
    return absl::InvalidArgumentError(FormattedString(
        "decode_attention: block_size is %d; expected a multiple of %d and "
        "rows on 16 bytes",
        from.kv.block_size, kTile));
  }
  CudaStream& cuda = CudaStream::Of(stream);
  return attention.kv == DType::kF16
             ? LaunchDim<__half>(desc, args, from.qkv.rows(), cuda)
             : LaunchDim<__nv_bfloat16>(desc, args, from.qkv.rows(), cuda);
}

}  // namespace inlay
