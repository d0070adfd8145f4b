// RunChunks of linear_attention by chunks (linear_attention_chunks_cuda.cu): a
// block of 8 warps takes 32 columns of a head's state through the chunks of a
// sequence.
//
// The state stays in registers as sums of mma.m16n8k16 and goes to shared
// memory in two parts of bf16, so that 16 of its bits count; U is rounded to
// bf16 once. What a chunk reads comes by cp.async while the one before it is
// computed: two stages of 58 KB. Four barriers a chunk. Sums in float32.
//
// kChannel: k and q come with their decays from the workspace, and there are
// none in the products here; k as the state gets it has 17 KB of its own, which
// are read while the chunk is computed. 165 KB of shared memory with it: a
// third stage would be too much for sm_80. Three barriers a chunk.
//
// Bound by what follows one another: some 2 us a chunk.
#include "kernels/linear_attention/linear_attention_chunks.cuh"

namespace inlay::chunks {
namespace {

constexpr int kRunThreads = 256;

template <int kKeys, bool kDelta, bool kChannel>
class ChunkRunner {
 public:
  struct Stage {
    alignas(16) Element k[kChunk * (kKeys + kPad)];
    alignas(16) Element q[kChunk * (kKeys + kPad)];
    alignas(16) Element v[kChunk * (kSlab + kPad)];
    alignas(16) Element seen[kChunk * (kChunk + kPad)];
    alignas(16) Element inner[kDelta ? kChunk * (kChunk + kPad) : 8];
  };
  struct Shared {
    Stage stages[2];
    alignas(16) Element high[kKeys * (kSlab + kPad)];  // of the state
    alignas(16) Element low[kKeys * (kSlab + kPad)];
    alignas(16) Element b[kDelta ? kChunk * (kSlab + kPad) : 8];
    alignas(16) Element u[kChunk * (kSlab + kPad)];
    // As the state gets it: u; of decays a channel k, which waits for u.
    alignas(16) Element
        left[kChannel ? kChunk * (kKeys + kPad) : kChunk * (kSlab + kPad)];
    float grown[kChannel ? 1 : kChunk];   // g
    float to_end[kChannel ? 1 : kChunk];  // g_last / g
    float betas[kChunk];
    float sums[2];  // of the logarithms of each warp's
  };

  __device__ ChunkRunner(const ChunkArgs& args, Shared& shared, int head,
                         int column)
      : args_(args),
        shared_(shared),
        head_(head),
        column_(column),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        token_(16 * (warp_ % 4) + lane_ / 4),
        slab_(16 * (warp_ / 4)),
        skip_(args.skip == nullptr ? 0.0f : args.skip[head]) {}

  __device__ void LoadState(int32_t source) {
    ForEachOfState([&](int key, int column, float& low, float& high) {
      low = high = 0.0f;
      if (source < 0) return;
      const float2 two =
          *reinterpret_cast<const float2*>(InState(source, key, column));
      low = two.x;
      high = two.y;
    });
    ShareState();
  }

  __device__ void Run(Chunks& chunks) {
    Fetch(chunks, shared_.stages[0]);
    for (int turn = 0; !chunks.Done(); turn ^= 1) {
      const Gate gate = gate_;
      const float2 growth = growth_;
      const int64_t row = chunks.row();
      const int count = chunks.count();
      const int32_t to = chunks.EndsRun() ? chunks.run().to : -1;
      chunks.Next();
      WaitForCopies();
      __syncthreads();
      if constexpr (kChannel) {
        CopyRows<kChunk, kKeys, kRunThreads>(
            shared_.left, args_.last_k + OfKeys(row), KeyStride(), count);
        GroupCopies();
      }
      if (!chunks.Done()) Fetch(chunks, shared_.stages[turn ^ 1]);
      if constexpr (kChannel) GroupCopies();
      Chunk(shared_.stages[turn], gate, growth, row, count);
      if (to >= 0) StoreState(to);
    }
  }

 private:
  // The state's rows are shared out to warps 16 at a time.
  static constexpr int kRowWarps = kKeys / 16;
  static constexpr int kColumnWarps = 8 / kRowWarps;
  static constexpr int kStateTiles = kSlab / 8 / kColumnWarps;
  static_assert(kStateTiles % 2 == 0);

  __device__ int state_row() const { return warp_ % kRowWarps * 16; }
  __device__ int state_column() const {
    return warp_ / kRowWarps * (8 * kStateTiles);
  }

  // fn(key, column of the slab, two neighbours).
  template <typename Fn>
  __device__ void ForEachOfState(Fn fn) {
#pragma unroll
    for (int tile = 0; tile < kStateTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        fn(state_row() + 8 * half + lane_ / 4,
           state_column() + 8 * tile + lane_ % 4 * 2, state_[tile][2 * half],
           state_[tile][2 * half + 1]);
      }
    }
  }
  __device__ float* InState(int32_t block, int key, int column) const {
    return args_.states.Of(block) +
           (int64_t{head_} * kKeys + key) * args_.value_dim + column_ + column;
  }
  __device__ void StoreState(int32_t to) {
    ForEachOfState([&](int key, int column, float low, float high) {
      *reinterpret_cast<float2*>(InState(to, key, column)) =
          make_float2(low, high);
    });
  }
  // To shared memory, in two parts.
  __device__ void ShareState() {
    ForEachOfState([&](int key, int column, float low, float high) {
      const int at = key * Tile<kSlab>::kStride + column;
      const uint32_t most = NarrowPair<Element>(low, high);
      const float2 kept = WidenPair<Element>(most);
      *reinterpret_cast<uint32_t*>(shared_.high + at) = most;
      StorePair(shared_.low + at, low - kept.x, high - kept.y);
    });
  }

  // Where the workspace has a row's keys.
  __device__ int64_t OfKeys(int64_t row) const {
    return (row * args_.num_heads + head_) * kKeys;
  }
  __device__ int64_t KeyStride() const {
    return int64_t{args_.num_heads} * kKeys;
  }

  // Begins to read what a chunk needs.
  __device__ void Fetch(const Chunks& chunks, Stage& stage) {
    const int64_t row = chunks.row();
    const int count = chunks.count();
    const int64_t stride = int64_t{args_.num_heads} * kChunk;
    const int64_t first = (row * args_.num_heads + head_) * kChunk;
    if constexpr (kChannel) {
      if constexpr (kDelta) {
        CopyRows<kChunk, kKeys, kRunThreads>(
            stage.k, args_.grown_k + OfKeys(row), KeyStride(), count);
      }
      CopyRows<kChunk, kKeys, kRunThreads>(stage.q, args_.grown_q + OfKeys(row),
                                           KeyStride(), count);
      const float* const growth =
          args_.growth +
          (int64_t{chunks.index()} * args_.num_heads + head_) * kKeys +
          state_row() + lane_ / 4;
      growth_ = make_float2(growth[0], growth[8]);
    } else {
      const int key = head_ / args_.heads_a_key * kKeys;
      CopyRows<kChunk, kKeys, kRunThreads>(stage.k, args_.k.row(row) + key,
                                           args_.k.stride, count);
      CopyRows<kChunk, kKeys, kRunThreads>(stage.q, args_.q.row(row) + key,
                                           args_.q.stride, count);
    }
    CopyRows<kChunk, kSlab, kRunThreads>(
        stage.v, args_.v.row(row) + int64_t{head_} * args_.value_dim + column_,
        args_.v.stride, count);
    CopyRows<kChunk, kChunk, kRunThreads>(stage.seen, args_.seen + first,
                                          stride, count);
    if constexpr (kDelta) {
      CopyRows<kChunk, kChunk, kRunThreads>(stage.inner, args_.inner + first,
                                            stride, count);
    }
    if (threadIdx.x < kChunk) {
      gate_ = LoadGate<!kChannel>(args_, head_, row, count);
    }
  }

  // Two 16 x 8 tiles of a product with rows [16 (warp % 4), + 16) of a lower
  // triangle.
  __device__ void Triangle(const Element* a, const Element* b,
                           float (&sums)[2][4]) {
#pragma unroll
    for (int s = 0; s < kChunk; s += 16) {
      if (s > 16 * (warp_ % 4)) break;
      uint32_t left[4], right[4];
      Tile<kChunk>::LoadA(a, 16 * (warp_ % 4), s, left);
      Tile<kSlab>::LoadB(b, s, slab_, right);
      Multiply(sums[0], left, right[0], right[1]);
      Multiply(sums[1], left, right[2], right[3]);
    }
  }

  // fn(token, column of the slab, two neighbours of the warp's tiles).
  template <typename Fn>
  __device__ void ForEachOfTiles(float (&sums)[2][4], Fn fn) {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        fn(token_ + 8 * half, slab_ + 8 * tile + lane_ % 4 * 2,
           sums[tile][2 * half], sums[tile][2 * half + 1]);
      }
    }
  }

  __device__ void Chunk(const Stage& stage, const Gate& gate,
                        const float2& growth, int64_t row, int count) {
    float log = 0.0f;
    if (threadIdx.x < kChunk) {
      if constexpr (!kChannel) {
        log = SumInWarp(gate.log);
        if (lane_ == 31) shared_.sums[warp_] = log;
      }
      shared_.betas[threadIdx.x] = gate.beta;
    }
    float known[2][4] = {}, ahead[2][4] = {};  // K S and Q S
#pragma unroll
    for (int key = 0; key < kKeys; key += 16) {
      uint32_t high[4], low[4], a[4];
      Tile<kSlab>::LoadB(shared_.high, key, slab_, high);
      Tile<kSlab>::LoadB(shared_.low, key, slab_, low);
      if constexpr (kDelta) {
        Tile<kKeys>::LoadA(stage.k, 16 * (warp_ % 4), key, a);
        Add(known, a, high, low);
      }
      Tile<kKeys>::LoadA(stage.q, 16 * (warp_ % 4), key, a);
      Add(ahead, a, high, low);
    }
    __syncthreads();
    float total = 0.0f;
    if constexpr (!kChannel) {
      // The second warp's sums go on from the first's.
      total = shared_.sums[0] + shared_.sums[1];
      if (threadIdx.x < kChunk) {
        if (warp_ == 1) log += shared_.sums[0];
        shared_.grown[threadIdx.x] = exp2f(log);
        shared_.to_end[threadIdx.x] = exp2f(total - log);
      }
      __syncthreads();
    }
    Element* const b = kDelta ? shared_.b : shared_.u;
    ForEachOfTiles(known, [&](int t, int column, float low, float high) {
      const float2 v = Values(stage, t, column);
      const float beta = shared_.betas[t], grown = Grown(t);
      low = beta * (v.x - grown * low);
      high = beta * (v.y - grown * high);
      StorePair(b + t * Tile<kSlab>::kStride + column, low, high);
      if constexpr (!kDelta && !kChannel) StoreLeft(t, column, low, high);
    });
    if constexpr (!kDelta && kChannel) WaitForCopiesButOneGroup();
    __syncthreads();
    if constexpr (kDelta) {
      float u[2][4] = {};
      Triangle(stage.inner, shared_.b, u);
      ForEachOfTiles(u, [&](int t, int column, float low, float high) {
        StorePair(shared_.u + t * Tile<kSlab>::kStride + column, low, high);
        if constexpr (!kChannel) StoreLeft(t, column, low, high);
      });
      if constexpr (kChannel) WaitForCopiesButOneGroup();
      __syncthreads();
    }
    if constexpr (!kChannel) {
      ForEachOfTiles(ahead, [&](int t, int, float& low, float& high) {
        low *= shared_.grown[t];
        high *= shared_.grown[t];
      });
    }
    Triangle(stage.seen, shared_.u, ahead);
    ForEachOfTiles(ahead, [&](int t, int column, float low, float high) {
      if (t >= count) return;
      const float2 v = Values(stage, t, column);
      const float scale = ScaleOf(row + t);
      StorePair(args_.y.row(row + t) + int64_t{head_} * args_.value_dim +
                    column_ + column,
                fmaf(skip_, v.x, scale * low), fmaf(skip_, v.y, scale * high));
    });
    if constexpr (kChannel) {
      GrowState(shared_.left, shared_.u, growth);
    } else {
      const float factor = exp2f(total);
      GrowState(stage.k, shared_.left, make_float2(factor, factor));
    }
    ShareState();
  }

  __device__ void Add(float (&sums)[2][4], const uint32_t (&a)[4],
                      const uint32_t (&high)[4], const uint32_t (&low)[4]) {
    Multiply(sums[0], a, high[0], high[1]);
    Multiply(sums[1], a, high[2], high[3]);
    Multiply(sums[0], a, low[0], low[1]);
    Multiply(sums[1], a, low[2], low[3]);
  }

  __device__ float2 Values(const Stage& stage, int t, int column) const {
    return WidenPair<Element>(*reinterpret_cast<const uint32_t*>(
        stage.v + t * Tile<kSlab>::kStride + column));
  }
  __device__ float ScaleOf(int64_t row) const {
    if (args_.scales == nullptr) return 1.0f;
    return args_.scales[row * args_.num_heads + head_];
  }
  __device__ float Grown(int t) const {
    if constexpr (kChannel) return 1.0f;
    return shared_.grown[t];
  }
  __device__ void StoreLeft(int t, int column, float low, float high) {
    const float factor = shared_.to_end[t];
    StorePair(shared_.left + t * Tile<kSlab>::kStride + column, factor * low,
              factor * high);
  }

  // By `factors` of the lane's rows, and + k^T u.
  __device__ void GrowState(const Element* k, const Element* u,
                            const float2& factors) {
#pragma unroll
    for (auto& tile : state_) {
      tile[0] *= factors.x;
      tile[1] *= factors.x;
      tile[2] *= factors.y;
      tile[3] *= factors.y;
    }
#pragma unroll
    for (int t = 0; t < kChunk; t += 16) {
      uint32_t a[4];
      Tile<kKeys>::LoadTransposedA(k, t, state_row(), a);
#pragma unroll
      for (int tile = 0; tile < kStateTiles; tile += 2) {
        uint32_t b[4];
        Tile<kSlab>::LoadB(u, t, state_column() + 8 * tile, b);
        Multiply(state_[tile], a, b[0], b[1]);
        Multiply(state_[tile + 1], a, b[2], b[3]);
      }
    }
  }

  const ChunkArgs& args_;
  Shared& shared_;
  const int head_;
  const int column_;  // of the values, the slab's first
  const int warp_;
  const int lane_;
  const int token_;  // the lane's first in products of tokens
  const int slab_;   // the warp's first column there
  const float skip_;
  float state_[kStateTiles][4];
  // Of the chunk that is on its way.
  Gate gate_;
  float2 growth_ = {};  // of the lane's rows of the state
};

// Blocks: sequences * heads * slabs. y may be v, as a row is read by the block
// that writes it, before.
template <int kKeys, bool kDelta, bool kChannel>
__global__ void __launch_bounds__(kRunThreads)
    RunChunks(const __grid_constant__ ChunkArgs args) {
  using Runner = ChunkRunner<kKeys, kDelta, kChannel>;
  extern __shared__ __align__(16) char memory[];
  auto& shared = *reinterpret_cast<typename Runner::Shared*>(memory);
  LetNextBegin();
  const int slabs = args.value_dim / kSlab;
  const int slab = static_cast<int>(blockIdx.x) % slabs;
  const int task = static_cast<int>(blockIdx.x) / slabs;
  Chunks chunks(args.plan, task / args.num_heads);
  const bool mine = !chunks.Done() && chunks.run().sequence_rows >= kStateChunk;
  Runner runner(args, shared, task % args.num_heads, slab * kSlab);
  // The plan and the states are of before the step.
  if (mine) runner.LoadState(chunks.run().source);
  WaitForPrevious();
  if (mine) runner.Run(chunks);
}

template <int kKeys, bool kDelta, bool kChannel>
absl::Status Launch(const ChunkArgs& args, CudaStream& stream) {
  const int64_t slabs = args.value_dim / kSlab;
  return LaunchCuda(
      kWhat, stream,
      {args.plan.sequences * args.num_heads * slabs, kRunThreads,
       sizeof(typename ChunkRunner<kKeys, kDelta, kChannel>::Shared)},
      RunChunks<kKeys, kDelta, kChannel>, args);
}

}  // namespace

absl::Status LaunchRunChunks(const LinearAttentionDesc& desc,
                             const ChunkArgs& args, CudaStream& stream) {
  return WithVariant(desc, [&](auto variant) {
    using V = decltype(variant);
    return desc.decay == StateDecay::kChannel
               ? Launch<V::kKeys, V::kDelta, true>(args, stream)
               : Launch<V::kKeys, V::kDelta, false>(args, stream);
  });
}

}  // namespace inlay::chunks
