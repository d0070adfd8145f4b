// MakeChunks of linear_attention by chunks (linear_attention_chunks_cuda.cu):
// T and P of all chunks at once, a block of 4 warps a chunk and head. They go
// to the workspace row by row of tokens, rounded to bf16 once.
//
// P and A are products on the matrix units, each warp 16 rows as far as the
// triangle goes, and their sums are multiplied by what the decays come to. T is
// solved for column by column in float32, a thread each: 2,016 multiply-adds
// that follow one another in groups of four, which is most of a block's time.
// Shared memory with keys of 128: 52 KB, four blocks an SM.
//
// Roofline: q and k read and T and P written at the copy bandwidth.
#include "kernels/linear_attention/linear_attention_chunks.cuh"

namespace inlay::chunks {
namespace {

constexpr int kMakeThreads = 128;

template <int kKeys, bool kDelta>
class ChunkMaker {
 public:
  struct Shared {
    alignas(16) Element k[kChunk * (kKeys + kPad)];
    alignas(16) Element q[kChunk * (kKeys + kPad)];
    alignas(16) float a[kDelta ? kChunk : 1][kSolveStride];
    float logs[kChunk];  // summed up
    float betas[kChunk];
    float first;  // the first warp's
    int counts[kChunk];
  };

  __device__ ChunkMaker(const ChunkArgs& args, Shared& shared, int head)
      : args_(args), shared_(shared), head_(head) {}

  __device__ void Make(int64_t row, int count) {
    Load(row, count);
    const int warp = threadIdx.x / 32;
    float sums[kChunk / 8][4];
    Product(shared_.q, warp, sums);
    StoreSeen(row, count, warp, sums);
    if constexpr (kDelta) {
      Product(shared_.k, warp, sums);
      StoreInner(warp, sums);
      __syncthreads();
      SolveInner(shared_.a, shared_.k);
      __syncthreads();
      WriteInner<kMakeThreads>(args_, head_, row, count, shared_.k);
    }
    __syncthreads();
  }

 private:
  __device__ void Load(int64_t row, int count) {
    const int key = head_ / args_.heads_a_key * kKeys;
    CopyRows<kChunk, kKeys, kMakeThreads>(shared_.k, args_.k.row(row) + key,
                                          args_.k.stride, count);
    CopyRows<kChunk, kKeys, kMakeThreads>(shared_.q, args_.q.row(row) + key,
                                          args_.q.stride, count);
    float log = 0.0f;
    if (threadIdx.x < kChunk) {
      const Gate gate = LoadGate<true>(args_, head_, row, count);
      log = SumInWarp(gate.log);
      shared_.betas[threadIdx.x] = gate.beta;
      if (threadIdx.x == 31) shared_.first = log;
    }
    __syncthreads();
    if (threadIdx.x < kChunk) {
      shared_.logs[threadIdx.x] =
          log + (threadIdx.x >= 32 ? shared_.first : 0.0f);
    }
    WaitForCopies();
    __syncthreads();
  }

  // Rows 16 warp .. of x K^T, as far as the triangle goes.
  __device__ void Product(const Element* x, int warp,
                          float (&sums)[kChunk / 8][4]) {
#pragma unroll
    for (auto& tile : sums) tile[0] = tile[1] = tile[2] = tile[3] = 0.0f;
#pragma unroll
    for (int key = 0; key < kKeys; key += 16) {
      uint32_t a[4];
      Tile<kKeys>::LoadA(x, 16 * warp, key, a);
#pragma unroll
      for (int pair = 0; pair < kChunk / 16; ++pair) {
        if (pair > warp) break;
        uint32_t b[4];
        Tile<kKeys>::LoadTransposedB(shared_.k, 16 * pair, key, b);
        Multiply(sums[2 * pair], a, b[0], b[1]);
        Multiply(sums[2 * pair + 1], a, b[2], b[3]);
      }
    }
  }

  // fn(t, s, the sums of s and s + 1).
  template <typename Fn>
  __device__ void ForEachPair(int warp, const float (&sums)[kChunk / 8][4],
                              Fn fn) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int tile = 0; tile < kChunk / 8; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        fn(16 * warp + 8 * half + lane / 4, 8 * tile + lane % 4 * 2,
           sums[tile][2 * half], sums[tile][2 * half + 1]);
      }
    }
  }

  __device__ float Ratio(int t, int s) const {
    return exp2f(shared_.logs[t] - shared_.logs[s]);
  }

  __device__ void StoreSeen(int64_t row, int count, int warp,
                            const float (&sums)[kChunk / 8][4]) {
    ForEachPair(warp, sums, [&](int t, int s, float low, float high) {
      if (t >= count) return;
      low = s <= t ? low * Ratio(t, s) : 0.0f;
      high = s + 1 <= t ? high * Ratio(t, s + 1) : 0.0f;
      StorePair(args_.seen + ((row + t) * args_.num_heads + head_) * kChunk + s,
                low, high);
    });
  }

  __device__ void StoreInner(int warp, const float (&sums)[kChunk / 8][4]) {
    ForEachPair(warp, sums, [&](int t, int s, float low, float high) {
      const float beta = shared_.betas[t];
      shared_.a[t][s] = s < t ? beta * low * Ratio(t, s) : 0.0f;
      shared_.a[t][s + 1] = s + 1 < t ? beta * high * Ratio(t, s + 1) : 0.0f;
    });
  }

  const ChunkArgs& args_;
  Shared& shared_;
  const int head_;
};

// Blocks: windows of kChunk rows * heads.
template <int kKeys, bool kDelta>
__global__ void __launch_bounds__(kMakeThreads)
    MakeChunks(const __grid_constant__ ChunkArgs args) {
  using Maker = ChunkMaker<kKeys, kDelta>;
  extern __shared__ __align__(16) char memory[];
  auto& shared = *reinterpret_cast<typename Maker::Shared*>(memory);
  LetNextBegin();
  const int head = static_cast<int>(blockIdx.x) % args.num_heads;
  const int64_t window = int64_t{blockIdx.x / args.num_heads} * kChunk;
  if (threadIdx.x < kChunk) {
    shared.counts[threadIdx.x] = ChunkAt(args.plan, window + threadIdx.x).count;
  }
  WaitForPrevious();
  __syncthreads();
  Maker maker(args, shared, head);
  for (int i = 0; i < kChunk; ++i) {
    if (shared.counts[i] > 0) maker.Make(window + i, shared.counts[i]);
  }
}

template <int kKeys, bool kDelta>
absl::Status Launch(const ChunkArgs& args, CudaStream& stream) {
  const int64_t windows = (args.plan.rows + kChunk - 1) / kChunk;
  return LaunchCuda(kWhat, stream,
                    {windows * args.num_heads, kMakeThreads,
                     sizeof(typename ChunkMaker<kKeys, kDelta>::Shared)},
                    MakeChunks<kKeys, kDelta>, args);
}

}  // namespace

absl::Status LaunchMakeChunks(const LinearAttentionDesc& desc,
                              const ChunkArgs& args, CudaStream& stream) {
  if (desc.decay == StateDecay::kChannel) {
    return LaunchMakeChannelChunks(desc, args, stream);
  }
  return WithVariant(desc, [&](auto variant) {
    using V = decltype(variant);
    return Launch<V::kKeys, V::kDelta>(args, stream);
  });
}

}  // namespace inlay::chunks
