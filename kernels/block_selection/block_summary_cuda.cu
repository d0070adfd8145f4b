// block_summary on CUDA, from sm_80 up: the bits of the CPU's row, by the same
// float32 operations in the same order.
//
// Grid: a CTA of 128 threads for each of the step's tokens and KV heads; where
// the token's slot is not a block's last it ends at once. Shared memory: the
// block's keys, decoded to float32 (rows an odd number of words apart), and two
// centroids: 37 KB at 512 dimensions. Bounds: a thread a dimension. k-means: a
// thread a dimension for means, a lane a distance (its sum is one chain of
// additions, as the CPU's), and every warp the same distances, so that nobody
// has to be told. LSH: a warp a key (block_hash.cuh). Barriers: __syncthreads.
// Roofline: none: a block is summarised once, in its last key's step.
#include <algorithm>

#include "kernels/block_selection/block_hash.cuh"
#include "kernels/block_selection/block_summary.h"
#include "kernels/cuda_launch.cuh"
#include "kernels/kv_write/kv_load.cuh"
#include "kernels/kv_write/kv_row.cuh"

namespace inlay {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kLloydRounds = 3;  // as the CPU's row
constexpr unsigned kAll = 0xffffffffu;

struct SummaryArgs {
  KvLayerView keys;
  int64_t key_row_bytes;
  KvLayerView summaries;
  int64_t summary_row_bytes;
  const int64_t* slots;
  BlockMethod method;
  int num_kv_heads;
  int head_dim;
};

size_t SharedBytes(int head_dim) {
  return sizeof(float) *
         static_cast<size_t>((kSelectBlock + kCentroids) * (head_dim + 1));
}

__device__ std::byte* RowAt(const KvLayerView& view, int64_t row_bytes,
                            int64_t block, int head, int slot) {
  return view.base.base + block * view.block_stride_bytes +
         view.k_offset_bytes +
         (int64_t{head} * view.block_size + slot) * row_bytes;
}

// The bf16 next to x that is not above it, or not below it.
__device__ uint16_t RoundTowards(float x, bool up) {
  const uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
  const bool is_negative = bits >> 31 != 0;
  return static_cast<uint16_t>((up != is_negative ? bits + 0xffffu : bits) >>
                               16);
}

// One CTA, one block of one KV head.
class Block {
 public:
  __device__ Block(int dim, float* shared)
      : dim_(dim),
        stride_(dim + 1),
        keys_(shared),
        centroids_(shared + kSelectBlock * stride_) {}

  __device__ void Load(DType dtype, const std::byte* rows, int64_t row_bytes) {
    const int quads = dim_ / 4;
    for (int i = static_cast<int>(threadIdx.x); i < kSelectBlock * quads;
         i += kThreads) {
      const int t = i / quads;
      const int at = i % quads * 4;
      const float4 x = LoadKv4(dtype, rows + t * row_bytes, at);
      float* const to = keys_ + t * stride_ + at;
      to[0] = x.x;
      to[1] = x.y;
      to[2] = x.z;
      to[3] = x.w;
    }
    __syncthreads();
  }

  __device__ void Bounds(uint16_t* to) const {
    for (int d = static_cast<int>(threadIdx.x); d < dim_; d += kThreads) {
      float least = keys_[d];
      float most = least;
#pragma unroll
      for (int t = 1; t < kSelectBlock; ++t) {
        const float x = keys_[t * stride_ + d];
        // NaN stays: it compares with nothing.
        if (isnan(x)) least = most = x;
        if (x < least) least = x;
        if (x > most) most = x;
      }
      to[d] = RoundTowards(least, false);
      to[dim_ + d] = RoundTowards(most, true);
    }
  }

  __device__ void KMeans(uint16_t* to) {
    Means(0);
    __syncthreads();
    for (int c = 0; c < kCentroids; ++c) {
      const int farthest = FarthestFrom(centroids_);
      __syncthreads();  // all have read what is written now
      for (int d = static_cast<int>(threadIdx.x); d < dim_; d += kThreads) {
        centroids_[c * stride_ + d] = keys_[farthest * stride_ + d];
      }
      __syncthreads();
    }
    for (int round = 0; round < kLloydRounds; ++round) {
      const unsigned second = NearTheSecond();
      __syncthreads();
      Means(second);
      __syncthreads();
    }
    for (int i = static_cast<int>(threadIdx.x); i < kCentroids * dim_;
         i += kThreads) {
      to[i] = RoundToBF16(centroids_[i / dim_ * stride_ + i % dim_]);
    }
  }

  template <int kWidth>
  __device__ void Hashes(uint32_t* to) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const WarpHash<kWidth> hash(lane);
    for (int t = static_cast<int>(threadIdx.x) / 32; t < kSelectBlock;
         t += kWarps) {
      float x[kWidth / 32];
#pragma unroll
      for (int j = 0; j < kWidth / 32; ++j) {
        const int d = 32 * j + lane;
        x[j] = d < dim_ ? keys_[t * stride_ + d] : 0.0f;
      }
      uint32_t words[kHashHalves];
      hash.Hash(x, words);
#pragma unroll
      for (int j = 0; j < kHashHalves; ++j) {
        // Word 0 of all keys, then word 1.
        if (lane == j) to[2 * (j / 2 * kSelectBlock + t) + j % 2] = words[j];
      }
    }
  }

 private:
  // Of the keys in the second cluster, bit by bit, and of the others. A cluster
  // without keys stays as it is.
  __device__ void Means(unsigned second) {
    for (int c = 0; c < kCentroids; ++c) {
      const unsigned members = (c == 0 ? ~second : second) & 0xffffu;
      if (members == 0) continue;
      const auto count = static_cast<float>(__popc(members));
      for (int d = static_cast<int>(threadIdx.x); d < dim_; d += kThreads) {
        float sum = 0.0f;
#pragma unroll
        for (int t = 0; t < kSelectBlock; ++t) {
          if ((members >> t & 1) != 0) {
            sum = __fadd_rn(sum, keys_[t * stride_ + d]);
          }
        }
        centroids_[c * stride_ + d] = __fdiv_rn(sum, count);
      }
    }
  }

  __device__ float Distance(const float* a, const float* b) const {
    float distance = 0.0f;
#pragma unroll 8
    for (int d = 0; d < dim_; ++d) {
      const float way = __fsub_rn(a[d], b[d]);
      distance = __fadd_rn(distance, __fmul_rn(way, way));
    }
    return distance;
  }

  // The key; of equal ones the first. The same in all warps.
  __device__ int FarthestFrom(const float* point) const {
    const int t = static_cast<int>(threadIdx.x) % kSelectBlock;
    const float mine = Distance(keys_ + t * stride_, point);
    int farthest = 0;
    float most = __shfl_sync(kAll, mine, 0);
#pragma unroll
    for (int other = 1; other < kSelectBlock; ++other) {
      const float distance = __shfl_sync(kAll, mine, other);
      if (distance > most) {
        farthest = other;
        most = distance;
      }
    }
    return farthest;
  }

  // The keys nearer to the second centroid, bit by bit.
  __device__ unsigned NearTheSecond() const {
    static_assert(kCentroids * kSelectBlock == 32);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const float mine = Distance(keys_ + lane % kSelectBlock * stride_,
                                centroids_ + lane / kSelectBlock * stride_);
    const float other = __shfl_xor_sync(kAll, mine, kSelectBlock);
    return __ballot_sync(kAll, lane < kSelectBlock && other < mine);
  }

  int dim_;
  int stride_;
  float* keys_;       // [kSelectBlock][stride]
  float* centroids_;  // [kCentroids][stride]
};

__global__ void __launch_bounds__(kThreads)
    SummariseBlocks(const __grid_constant__ SummaryArgs args) {
  extern __shared__ float shared[];
  LetNextBegin();
  WaitForPrevious();
  const int head = static_cast<int>(blockIdx.x) % args.num_kv_heads;
  const int64_t last = args.slots[blockIdx.x / args.num_kv_heads];
  // Slots of nobody are negative.
  if (last < 0 || last % kSelectBlock != kSelectBlock - 1) return;
  const int64_t in_cache = last / args.keys.block_size;
  const int first =
      static_cast<int>(last % args.keys.block_size) - kSelectBlock + 1;
  Block block(args.head_dim, shared);
  block.Load(args.keys.dtype,
             RowAt(args.keys, args.key_row_bytes, in_cache, head, first),
             args.key_row_bytes);
  std::byte* const to =
      RowAt(args.summaries, args.summary_row_bytes, in_cache, head, first);
  if (args.method == BlockMethod::kBounds) {
    block.Bounds(reinterpret_cast<uint16_t*>(to));
  } else if (args.method == BlockMethod::kKMeans) {
    block.KMeans(reinterpret_cast<uint16_t*>(to));
  } else if (args.head_dim <= 128) {
    block.Hashes<128>(reinterpret_cast<uint32_t*>(to));
  } else if (args.head_dim <= 256) {
    block.Hashes<256>(reinterpret_cast<uint32_t*>(to));
  } else {
    block.Hashes<512>(reinterpret_cast<uint32_t*>(to));
  }
}

static_assert(kHashBits == 128 && kMaxSummaryHeadDim == 512);

}  // namespace

absl::Status RunBlockSummaryCuda(const BlockSummaryDesc& desc,
                                 const BlockSummaryParams& params,
                                 Stream& stream) {
  SummaryArgs args;
  args.keys = params.keys;
  args.key_row_bytes = params.keys.row_bytes();
  args.summaries = params.summaries;
  args.summary_row_bytes = params.summaries.row_bytes();
  args.slots = params.slots;
  args.method = desc.method;
  args.num_kv_heads = desc.num_kv_heads;
  args.head_dim = desc.head_dim;
  return LaunchCuda(
      "block_summary", CudaStream::Of(stream),
      {params.tokens * desc.num_kv_heads, kThreads, SharedBytes(desc.head_dim)},
      SummariseBlocks, args);
}

}  // namespace inlay
