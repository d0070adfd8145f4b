// MakeChunks of linear_attention by chunks (linear_attention_chunks_cuda.cu)
// for decays a channel: Kimi delta attention (arXiv:2510.26692), gated linear
// attention (Yang et al., arXiv:2312.06635).
//
// g_t is a vector now, and ratios of its elements are inside the sums over
// channels: A_ts = beta_t sum_c k_tc k_sc (g_tc / g_sc). No ratio is divided
// out. What lies between two tokens is a product of decays, and a product of
// numbers in [0, 1] is in [0, 1]: nothing overflows, whatever the decays are,
// zeros too; what underflows is less than 2^-149 of a term. In float32 such a
// product is off by 2^-24 a factor, 2^-18 of itself at most.
//
//   Tokens of one of four blocks of 16 ("near"): the product from s + 1 to t
//   grows by one decay from t to t + 1, sums over channels in float32.
//   Tokens of two blocks ("across"): a token r between them splits the product
//   in [s + 1, r) and [r, t], the one a factor of k_s, the other of k_t and
//   q_t, each rounded to bf16 once; the rest is a product of matrices. r is the
//   first token of the later block for blocks (0, 1) and (2, 3), token 32 for
//   the others: 6 tiles of 16 x 16, each side made once a reference.
//
// Grid: windows of kChunk rows * heads; a block of 8 warps a chunk and head.
// Near: two warps a block of tokens, each takes pairs of s, its lanes 2 or 4
// channels each; what 32 sums have with the lanes is added up in 31 exchanges.
// Then a thread takes 2 channels of a block of tokens and writes factors times
// k and q: to shared memory for the tiles, to the workspace for RunChunks,
// which so needs no decays. Then six warps a tile each. T as without channels.
// Shared memory with keys of 128: 106 KB, two blocks an SM.
//
// Roofline: per token and head of 128 keys 1 KB read and 1 KB written, 270 MB
// of 32 heads and 8,192 tokens each; 210,000 float32 multiply-adds a chunk and
// head for what is near.
#include "kernels/linear_attention/linear_attention_chunks.cuh"

namespace inlay::chunks {
namespace {

constexpr int kThreads = 256;
constexpr int kNear = 16;  // tokens of a block of them
constexpr int kBlocks = kChunk / kNear;

__device__ inline float2 Times(const float2& a, const float2& b) {
  return make_float2(a.x * b.x, a.y * b.y);
}

// values[i] of all lanes summed up, in lane i.
template <int kHalf = 16>
__device__ __forceinline__ float SumToLanes(const float (&values)[2 * kHalf]) {
  const bool upper = (threadIdx.x & kHalf) != 0;
  float sums[kHalf];
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float give = upper ? values[i] : values[i + kHalf];
    const float keep = upper ? values[i + kHalf] : values[i];
    sums[i] = keep + __shfl_xor_sync(0xffffffffu, give, kHalf);
  }
  if constexpr (kHalf == 1) {
    return sums[0];
  } else {
    return SumToLanes<kHalf / 2>(sums);
  }
}

template <int kKeys, bool kDelta>
class ChannelMaker {
 public:
  struct Shared {
    // k and q, later times what decays until the token from a reference on:
    // rows of 16 to 31 from 16, of 32 to 63 from 32, and in the place of the
    // first 16 tokens 48 to 63 from 48. Last T and P.
    alignas(16) Element k[kChunk * (kKeys + kPad)];
    alignas(16) Element q[kChunk * (kKeys + kPad)];
    // k times what decays until a reference: of tokens 0 to 15 until 16 and
    // until 32, of 16 to 31 until 32, of 32 to 47 until 48.
    alignas(16) Element until[kChunk * (kKeys + kPad)];
    alignas(16) float a[kDelta ? kChunk : 1][kSolveStride];
    alignas(16) Element near[kChunk * (kNear + kPad)];  // of P
    alignas(16) float decays[kChunk][kKeys];
    alignas(16) float totals[kBlocks][kKeys];  // of a block's decays
    float betas[kChunk];
    ChunkStart starts[kChunk];
  };

  __device__ ChannelMaker(const ChunkArgs& args, Shared& shared, int head)
      : args_(args),
        shared_(shared),
        head_(head),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32) {}

  __device__ void Make(int64_t row, const ChunkStart& start) {
    Load(row, start.count);
    Near();
    Held held;
    Hold(held);
    __syncthreads();
    if (block() < kBlocks) {
      GrowRows(held, row, start.count);
      EndRows(held, row, start);
    }
    __syncthreads();
    float seen[2][4] = {}, known[2][4] = {};
    const Across across(warp_);
    if (warp_ < kTiles) Multiply(across, seen, known);
    __syncthreads();
    if (warp_ < kTiles) Store(across, seen, known);
    __syncthreads();
    if constexpr (kDelta) SolveInner(shared_.a, shared_.k);
    WriteSeen(row, start.count);
    if constexpr (kDelta) {
      __syncthreads();
      WriteInner<kThreads>(args_, head_, row, start.count, shared_.k);
    }
    __syncthreads();
  }

 private:
  static constexpr int kStride = kKeys + kPad;
  static constexpr int kSeenStride = kChunk + kPad;
  static constexpr int kNearStride = kNear + kPad;
  static constexpr int kPairs = kKeys / 2;
  static constexpr int kTiles = 6;
  static_assert(kThreads >= kBlocks * kPairs);

  __device__ void Load(int64_t row, int count) {
    const int key = head_ / args_.heads_a_key * kKeys;
    CopyRows<kChunk, kKeys, kThreads>(shared_.k, args_.k.row(row) + key,
                                      args_.k.stride, count);
    CopyRows<kChunk, kKeys, kThreads>(shared_.q, args_.q.row(row) + key,
                                      args_.q.stride, count);
    constexpr int kPieces = kKeys / 4;
    for (int i = threadIdx.x; i < kChunk * kPieces; i += kThreads) {
      const int t = i / kPieces, piece = i % kPieces * 4;
      float* const to = &shared_.decays[t][piece];
      if (t < count) {
        CopyAsync(to, args_.decay.row(row + t) + int64_t{head_} * kKeys + piece,
                  true);
      } else {  // the chunk's products end with its tokens
        *reinterpret_cast<float4*>(to) = make_float4(1.0f, 1.0f, 1.0f, 1.0f);
      }
    }
    if (threadIdx.x < kChunk) {
      shared_.betas[threadIdx.x] =
          LoadGate<false>(args_, head_, row, count).beta;
    }
    WaitForCopies();
    __syncthreads();
  }

  // Channels [kLane lane, + kLane) of a row.
  static constexpr int kLane = kKeys / 32;
  __device__ void LoadLane(const Element* row, float (&to)[kLane]) const {
#pragma unroll
    for (int i = 0; i < kLane; i += 2) {
      const float2 two = WidenPair<Element>(
          *reinterpret_cast<const uint32_t*>(row + kLane * lane_ + i));
      to[i] = two.x;
      to[i + 1] = two.y;
    }
  }

  __device__ void LoadLane(const float* row, float (&to)[kLane]) const {
    if constexpr (kLane == 4) {
      const float4 four = *reinterpret_cast<const float4*>(row + 4 * lane_);
      to[0] = four.x;
      to[1] = four.y;
      to[2] = four.z;
      to[3] = four.w;
    } else {
      const float2 two = *reinterpret_cast<const float2*>(row + 2 * lane_);
      to[0] = two.x;
      to[1] = two.y;
    }
  }

  // A and P of tokens of a block: those of s and s + 1 for eight s of a warp,
  // chosen so that the two warps of a block have as much to do.
  __device__ void Near() {
    const int first = warp_ / 2 * kNear;
#pragma unroll 1
    for (int turn = 0; turn < kNear / 4; ++turn) {
      const int s = 2 * (2 * turn + ((turn ^ warp_) & 1));
      // [t][P, A] of s and of s + 1; without A [t][s, s + 1] and nothing.
      float ones[2 * kNear], others[2 * kNear];
      float one[kLane] = {}, other[kLane] = {};  // k times what decays since
#pragma unroll
      for (int t = 0; t < kNear; ++t) {
        float sums[4] = {};  // of s: P, A; of s + 1: P, A
        if (t >= s) {
          float k[kLane], q[kLane], decays[kLane];
          LoadLane(shared_.k + (first + t) * kStride, k);
          LoadLane(shared_.q + (first + t) * kStride, q);
          LoadLane(shared_.decays[first + t], decays);
#pragma unroll
          for (int i = 0; i < kLane; ++i) {
            one[i] = t == s ? k[i] : one[i] * decays[i];
            other[i] = t == s + 1 ? k[i] : other[i] * decays[i];
            sums[0] = fmaf(one[i], q[i], sums[0]);
            sums[2] = fmaf(other[i], q[i], sums[2]);
            if constexpr (kDelta) {
              sums[1] = fmaf(one[i], k[i], sums[1]);
              sums[3] = fmaf(other[i], k[i], sums[3]);
            }
          }
        }
        ones[2 * t] = sums[0];
        ones[2 * t + 1] = kDelta ? sums[1] : sums[2];
        others[2 * t] = sums[2];
        others[2 * t + 1] = sums[3];
      }
      const int t = first + lane_ / 2;
      if constexpr (kDelta) {
        const float sum = SumToLanes(ones), next = SumToLanes(others);
        if (lane_ % 2 == 0) {
          StorePair(shared_.near + t * kNearStride + s, sum, next);
        } else {
          const float beta = shared_.betas[t];
          *reinterpret_cast<float2*>(&shared_.a[t][first + s]) =
              make_float2(beta * sum, beta * next);
        }
      } else {
        shared_.near[t * kNearStride + s + lane_ % 2] =
            __float2bfloat16_rn(SumToLanes(ones));
      }
    }
  }

  // Two channels of a block's rows, as they were loaded.
  struct Held {
    float2 decays[kNear];
    uint32_t k[kNear];
    uint32_t q[kNear];
  };
  __device__ int block() const {
    return static_cast<int>(threadIdx.x) / kPairs;
  }
  __device__ int channel() const {
    return static_cast<int>(threadIdx.x) % kPairs * 2;
  }

  __device__ void Hold(Held& held) {
    if (block() >= kBlocks) return;
    float2 total = make_float2(1.0f, 1.0f);
#pragma unroll
    for (int i = 0; i < kNear; ++i) {
      const int t = kNear * block() + i;
      held.decays[i] =
          *reinterpret_cast<const float2*>(&shared_.decays[t][channel()]);
      held.k[i] = *reinterpret_cast<const uint32_t*>(
          &shared_.k[t * kStride + channel()]);
      held.q[i] = *reinterpret_cast<const uint32_t*>(
          &shared_.q[t * kStride + channel()]);
      total = Times(total, held.decays[i]);
    }
    *reinterpret_cast<float2*>(&shared_.totals[block()][channel()]) = total;
  }
  __device__ float2 Total(int block) const {
    return *reinterpret_cast<const float2*>(&shared_.totals[block][channel()]);
  }

  __device__ void StoreTimes(Element* to, uint32_t pair,
                             const float2& factors) const {
    const float2 product = Times(WidenPair<Element>(pair), factors);
    StorePair(to, product.x, product.y);
  }
  // Of k or q, in the workspace.
  __device__ Element* InRow(Element* base, int64_t row) const {
    return base + (row * args_.num_heads + head_) * kKeys + channel();
  }
  // `factors` k and q to a row of shared memory.
  __device__ void StoreRow(const Held& held, int i, int row,
                           const float2& factors) {
    const int at = row * kStride + channel();
    StoreTimes(shared_.q + at, held.q[i], factors);
    if constexpr (kDelta) StoreTimes(shared_.k + at, held.k[i], factors);
  }

  // k and q times what decays until their tokens.
  __device__ void GrowRows(const Held& held, int64_t row, int count) {
    float2 before = make_float2(1.0f, 1.0f);
    for (int b = 0; b < block(); ++b) before = Times(before, Total(b));
    const float2 second = Total(2);
    float2 grown = make_float2(1.0f, 1.0f);
#pragma unroll
    for (int i = 0; i < kNear; ++i) {
      const int t = kNear * block() + i;
      grown = Times(grown, held.decays[i]);
      if (t < count) {
        const float2 all = Times(before, grown);
        StoreTimes(InRow(args_.grown_q, row + t), held.q[i], all);
        if constexpr (kDelta) {
          StoreTimes(InRow(args_.grown_k, row + t), held.k[i], all);
        }
      }
      if (block() == 3) {
        StoreRow(held, i, t, Times(second, grown));
        StoreRow(held, i, i, grown);
      } else if (block() > 0) {
        StoreRow(held, i, t, grown);
      }
    }
  }

  // k times what decays from the tokens on.
  __device__ void EndRows(const Held& held, int64_t row,
                          const ChunkStart& start) {
    float2 after = make_float2(1.0f, 1.0f);
    for (int b = kBlocks - 1; b > block(); --b) after = Times(after, Total(b));
    const float2 first = Total(1);
    float2 left = make_float2(1.0f, 1.0f);
#pragma unroll
    for (int i = kNear - 1; i >= 0; --i) {
      const int t = kNear * block() + i;
      if (t < start.count) {
        StoreTimes(InRow(args_.last_k, row + t), held.k[i], Times(after, left));
      }
      if (block() == 0) {
        StoreTimes(shared_.until + i * kStride + channel(), held.k[i], left);
        StoreTimes(shared_.until + (kNear + i) * kStride + channel(), held.k[i],
                   Times(first, left));
      } else if (block() < 3) {
        StoreTimes(shared_.until + (kNear + t) * kStride + channel(), held.k[i],
                   left);
      }
      left = Times(left, held.decays[i]);
    }
    if (block() == 0) {
      *reinterpret_cast<float2*>(
          args_.growth +
          (int64_t{start.index} * args_.num_heads + head_) * kKeys +
          channel()) = Times(after, left);
    }
  }

  // The tile of a warp: where its factors lie, where it belongs.
  struct Across {
    __device__ explicit Across(int warp)
        : row(warp == 0   ? 16
              : warp == 1 ? 0
                          : 32 + (warp - 2) / 2 * 16),
          until(warp < 2 ? 48 * warp : 16 + warp % 2 * 16),
          t(warp == 1 ? 48 : row),
          s(warp < 2 ? 32 * warp : warp % 2 * 16) {}
    int row;
    int until;
    int t;
    int s;
  };

  __device__ void Multiply(const Across& across, float (&seen)[2][4],
                           float (&known)[2][4]) {
#pragma unroll
    for (int key = 0; key < kKeys; key += 16) {
      uint32_t a[4], b[4];
      Tile<kKeys>::LoadTransposedB(shared_.until, across.until, key, b);
      Tile<kKeys>::LoadA(shared_.q, across.row, key, a);
      chunks::Multiply(seen[0], a, b[0], b[1]);
      chunks::Multiply(seen[1], a, b[2], b[3]);
      if constexpr (kDelta) {
        Tile<kKeys>::LoadA(shared_.k, across.row, key, a);
        chunks::Multiply(known[0], a, b[0], b[1]);
        chunks::Multiply(known[1], a, b[2], b[3]);
      }
    }
  }

  // P to where q was.
  __device__ void Store(const Across& across, const float (&seen)[2][4],
                        const float (&known)[2][4]) {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int t = across.t + 8 * half + lane_ / 4;
        const int s = across.s + 8 * tile + lane_ % 4 * 2;
        StorePair(shared_.q + t * kSeenStride + s, seen[tile][2 * half],
                  seen[tile][2 * half + 1]);
        if constexpr (kDelta) {
          const float beta = shared_.betas[t];
          shared_.a[t][s] = beta * known[tile][2 * half];
          shared_.a[t][s + 1] = beta * known[tile][2 * half + 1];
        }
      }
    }
  }

  __device__ void WriteSeen(int64_t row, int count) {
    constexpr int kPieces = kChunk / 8;
    for (int i = threadIdx.x; i < count * kPieces; i += kThreads) {
      const int t = i / kPieces, piece = i % kPieces * 8;
      const int first = t / kNear * kNear;
      if (piece >= first + kNear) continue;
      const Element* const from =
          piece < first ? shared_.q + t * kSeenStride + piece
                        : shared_.near + t * kNearStride + piece - first;
      *reinterpret_cast<uint4*>(
          args_.seen + ((row + t) * args_.num_heads + head_) * kChunk + piece) =
          *reinterpret_cast<const uint4*>(from);
    }
  }

  const ChunkArgs& args_;
  Shared& shared_;
  const int head_;
  const int warp_;
  const int lane_;
};

template <int kKeys, bool kDelta>
__global__ void __launch_bounds__(kThreads, 2)
    MakeChannelChunks(const __grid_constant__ ChunkArgs args) {
  using Maker = ChannelMaker<kKeys, kDelta>;
  extern __shared__ __align__(16) char memory[];
  auto& shared = *reinterpret_cast<typename Maker::Shared*>(memory);
  LetNextBegin();
  const int head = static_cast<int>(blockIdx.x) % args.num_heads;
  const int64_t window = int64_t{blockIdx.x / args.num_heads} * kChunk;
  if (threadIdx.x < kChunk) {
    shared.starts[threadIdx.x] = ChunkAt(args.plan, window + threadIdx.x);
  }
  WaitForPrevious();
  __syncthreads();
  Maker maker(args, shared, head);
  for (int i = 0; i < kChunk; ++i) {
    const ChunkStart start = shared.starts[i];
    if (start.count > 0) maker.Make(window + i, start);
  }
}

template <int kKeys, bool kDelta>
absl::Status Launch(const ChunkArgs& args, CudaStream& stream) {
  const int64_t windows = (args.plan.rows + kChunk - 1) / kChunk;
  return LaunchCuda(kWhat, stream,
                    {windows * args.num_heads, kThreads,
                     sizeof(typename ChannelMaker<kKeys, kDelta>::Shared)},
                    MakeChannelChunks<kKeys, kDelta>, args);
}

}  // namespace

absl::Status LaunchMakeChannelChunks(const LinearAttentionDesc& desc,
                                     const ChunkArgs& args,
                                     CudaStream& stream) {
  return WithVariant(desc, [&](auto variant) {
    using V = decltype(variant);
    return Launch<V::kKeys, V::kDelta>(args, stream);
  });
}

}  // namespace inlay::chunks
