// What feature maps and the normaliser need of linear_attention by chunks
// (linear_attention_chunks_cuda.cu): q and k as features, and what y is divided
// by.
//
// MapFeatures: a thread takes 8 elements of q or of k. Roofline: both read and
// written at the copy bandwidth.
//
// Normalise: a block of 4 warps takes a head's z, a thread a key, through the
// chunks of a sequence. A warp takes every fourth token: what q has in common
// with z, as it was before the chunk, and a row of P times beta, added up over
// the lanes. Everything is in float32 but what it reads. Two KB of shared
// memory, three barriers a chunk; bound by what follows one another.
#include "kernels/linear_attention/linear_attention_chunks.cuh"
#include "kernels/linear_attention/linear_attention_rows.cuh"

namespace inlay::chunks {
namespace {

constexpr int kMapThreads = 256;
constexpr int kPiece = 8;  // elements, 16 bytes
constexpr int kThreads = 128;

__device__ inline uint32_t MapPair(FeatureMap map, uint32_t pair) {
  const float2 x = WidenPair<Element>(pair);
  return NarrowPair<Element>(MapFeature(map, x.x), MapFeature(map, x.y));
}

// Blocks: pieces of all rows of q and of k.
__global__ void __launch_bounds__(kMapThreads)
    MapFeatures(const __grid_constant__ FeatureArgs args) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t pieces = args.width / kPiece;
  int64_t piece = int64_t{blockIdx.x} * kMapThreads + threadIdx.x;
  const bool of_k = piece >= args.rows * pieces;
  if (of_k) piece -= args.rows * pieces;
  const int64_t row = piece / pieces, column = piece % pieces * kPiece;
  if (row >= args.rows) return;
  const CudaMatrix<const Element>& from = of_k ? args.k : args.q;
  Element* const to = of_k ? args.to_k : args.to_q;
  const uint4 x = *reinterpret_cast<const uint4*>(from.row(row) + column);
  *reinterpret_cast<uint4*>(to + row * args.width + column) =
      make_uint4(MapPair(args.map, x.x), MapPair(args.map, x.y),
                 MapPair(args.map, x.z), MapPair(args.map, x.w));
}

template <int kKeys, bool kChannel>
class Normaliser {
 public:
  struct Shared {
    float z[kKeys];
    float grown[kChunk];  // g
    float betas[kChunk];
    float to_end[kChunk];  // beta g_last / g
    float sums[2];         // of the logarithms of each warp's
  };

  __device__ Normaliser(const ChunkArgs& args, Shared& shared, int head)
      : args_(args),
        shared_(shared),
        head_(head),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        key_(threadIdx.x) {}

  __device__ void Load(int32_t source) {
    if (key_ >= kKeys) return;
    z_ = source < 0 ? 0.0f : *InState(source);
    shared_.z[key_] = z_;
  }

  __device__ void Run(Chunks& chunks) {
    for (; !chunks.Done(); chunks.Next()) {
      const int64_t row = chunks.row();
      const int count = chunks.count();
      const float growth = Gates(chunks);
      for (int t = warp_; t < count; t += kThreads / 32) Token(row + t, t);
      if (key_ < kKeys) Grow(growth, row, count);
      __syncthreads();
      if (key_ >= kKeys) continue;
      shared_.z[key_] = z_;
      if (chunks.EndsRun()) *InState(chunks.run().to) = z_;
    }
  }

 private:
  __device__ float* InState(int32_t block) const {
    return args_.states.Of(block) +
           (int64_t{args_.num_heads} * args_.value_dim + head_) * kKeys + key_;
  }
  // Of a token in what the workspace has of every head.
  __device__ int64_t InHeads(int64_t row) const {
    return row * args_.num_heads + head_;
  }

  // To shared memory; what z becomes without the chunk's tokens.
  __device__ float Gates(const Chunks& chunks) {
    const Gate gate =
        LoadGate<!kChannel>(args_, head_, chunks.row(), chunks.count());
    float log = SumInWarp(gate.log);
    if (warp_ < 2 && lane_ == 31) shared_.sums[warp_] = log;
    __syncthreads();
    const float total = shared_.sums[0] + shared_.sums[1];
    if (key_ < kChunk) {
      if (warp_ == 1) log += shared_.sums[0];
      shared_.grown[key_] = exp2f(log);
      shared_.betas[key_] = gate.beta;
      shared_.to_end[key_] = gate.beta * exp2f(total - log);
    }
    __syncthreads();
    if constexpr (!kChannel) return exp2f(total);
    return key_ < kKeys ? args_.growth[InHeads(chunks.index()) * kKeys + key_]
                        : 0.0f;
  }

  // Token t of the chunk, by a warp.
  __device__ void Token(int64_t row, int t) {
    const Element* const q =
        kChannel ? args_.grown_q + InHeads(row) * kKeys
                 : args_.q.row(row) + head_ / args_.heads_a_key * kKeys;
    float sum = 0.0f;
#pragma unroll
    for (int key = 0; key < kKeys; key += 64) {
      const float2 two = Pair(q + key);
      sum = fmaf(two.x, shared_.z[key + 2 * lane_], sum);
      sum = fmaf(two.y, shared_.z[key + 2 * lane_ + 1], sum);
    }
    if constexpr (!kChannel) sum *= shared_.grown[t];
    const int s = 2 * lane_;
    const float2 seen = Pair(args_.seen + InHeads(row) * kChunk);
    if (s <= t) sum = fmaf(seen.x, shared_.betas[s], sum);
    if (s + 1 <= t) sum = fmaf(seen.y, shared_.betas[s + 1], sum);
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    }
    if (lane_ == 0) args_.scales[InHeads(row)] = 1.0f / (sum + args_.epsilon);
  }

  // The lane's two of 64.
  __device__ float2 Pair(const Element* row) const {
    return WidenPair<Element>(
        *reinterpret_cast<const uint32_t*>(row + 2 * lane_));
  }

  __device__ void Grow(float growth, int64_t row, int count) {
    const Element* k =
        kChannel ? args_.last_k + InHeads(row) * kKeys
                 : args_.k.row(row) + head_ / args_.heads_a_key * kKeys;
    const int64_t stride =
        kChannel ? int64_t{args_.num_heads} * kKeys : args_.k.stride;
    const float* const factors = kChannel ? shared_.betas : shared_.to_end;
    z_ *= growth;
#pragma unroll 8
    for (int t = 0; t < count; ++t) {
      z_ = fmaf(__bfloat162float(k[t * stride + key_]), factors[t], z_);
    }
  }

  const ChunkArgs& args_;
  Shared& shared_;
  const int head_;
  const int warp_;
  const int lane_;
  const int key_;
  float z_ = 0.0f;
};

// Blocks: sequences * heads.
template <int kKeys, bool kChannel>
__global__ void __launch_bounds__(kThreads)
    Normalise(const __grid_constant__ ChunkArgs args) {
  using HeadNormaliser = Normaliser<kKeys, kChannel>;
  __shared__ typename HeadNormaliser::Shared shared;
  LetNextBegin();
  Chunks chunks(args.plan, static_cast<int>(blockIdx.x) / args.num_heads);
  const bool mine = !chunks.Done() && chunks.run().sequence_rows >= kStateChunk;
  HeadNormaliser normaliser(args, shared,
                            static_cast<int>(blockIdx.x) % args.num_heads);
  // The plan and the states are of before the step.
  if (mine) normaliser.Load(chunks.run().source);
  WaitForPrevious();
  if (mine) normaliser.Run(chunks);
}

}  // namespace

absl::Status LaunchMapFeatures(const FeatureArgs& args, CudaStream& stream) {
  const int64_t pieces = 2 * args.rows * (args.width / kPiece);
  return LaunchCuda(kWhat, stream,
                    {(pieces + kMapThreads - 1) / kMapThreads, kMapThreads},
                    MapFeatures, args);
}

absl::Status LaunchNormalisers(const LinearAttentionDesc& desc,
                               const ChunkArgs& args, CudaStream& stream) {
  const bool channel = desc.decay == StateDecay::kChannel;
  const auto kernel =
      desc.key_dim == 64
          ? (channel ? Normalise<64, true> : Normalise<64, false>)
          : (channel ? Normalise<128, true> : Normalise<128, false>);
  return LaunchCuda(kWhat, stream,
                    {args.plan.sequences * args.num_heads, kThreads}, kernel,
                    args);
}

}  // namespace inlay::chunks
