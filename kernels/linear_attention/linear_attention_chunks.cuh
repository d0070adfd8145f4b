// linear_attention by chunks: what its kernels share. The recurrence as they
// compute it is in linear_attention_chunks_cuda.cu.
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_LINEAR_ATTENTION_CHUNKS_CUH_
#define INLAY_KERNELS_LINEAR_ATTENTION_LINEAR_ATTENTION_CHUNKS_CUH_

#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/linear_attention/chunk_tiles.cuh"
#include "kernels/linear_attention/linear_attention_cuda.h"
#include "kernels/linear_attention/state_plan.cuh"

namespace inlay::chunks {

constexpr int kChunk = kStateChunk;
constexpr int kSlab = 32;  // columns of the state that a block of RunChunks has
// Of logarithms of decays: what is less is nothing, and differences stay
// finite.
constexpr float kLeastLog = -1000.0f;
constexpr char kWhat[] = "linear_attention by chunks";

struct ChunkArgs {
  CudaMatrix<const Element> q, k, v;
  CudaMatrix<const float> decay;  // without data: 1
  CudaMatrix<const float> beta;   // likewise
  CudaMatrix<Element> y;
  const float* skip;
  CudaStates states;
  StatePlan plan;
  int num_heads;
  int heads_a_key;
  int value_dim;
  Element* inner;  // T: [rows, heads, kChunk]
  Element* seen;   // P: likewise, its 16 x 16 tiles as far as the triangle goes
  float* scales;   // of y without skip: [rows, heads]; null: 1
  float epsilon;   // of the normaliser
  // Of decays a channel, [rows, heads, keys]: diag(g) K, diag(g) Q and K
  // diag(g_last / g); g_last: [chunks, heads, keys].
  Element* grown_k;
  Element* grown_q;
  Element* last_k;
  float* growth;
};

struct Gate {
  float log = 0.0f;  // of the decay, to base 2
  float beta = 0.0f;
};

// Of the thread's token: threads 0 to kChunk - 1. kLog: with the decay.
template <bool kLog>
__device__ Gate LoadGate(const ChunkArgs& args, int head, int64_t row,
                         int count) {
  Gate gate;
  const int t = threadIdx.x;
  if (t >= count) return gate;
  gate.beta = args.beta.data == nullptr ? 1.0f : args.beta.row(row + t)[head];
  if (kLog && args.decay.data != nullptr) {
    gate.log = fmaxf(log2f(args.decay.row(row + t)[head]), kLeastLog);
  }
  return gate;
}

// Sums of logarithms up to the lane's.
__device__ inline float SumInWarp(float log) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float other = __shfl_up_sync(0xffffffffu, log, step);
    if (lane >= step) log += other;
  }
  return log;
}

struct ChunkStart {
  int count = 0;  // tokens; 0: no chunk begins there
  int index = 0;  // of the plan's chunks
};

// The chunk that begins at the thread's row.
__device__ inline ChunkStart ChunkAt(const StatePlan& plan, int64_t row) {
  if (row >= plan.rows) return {};
  const int32_t index = plan.run_of_row[row];
  if (index < 0) return {};
  const StatePlanRun run = plan.runs[index];
  const auto in_run = static_cast<int>(row - run.row);
  if (run.sequence_rows < kStateChunk || in_run % kChunk != 0) return {};
  return {min(kChunk, run.count - in_run), run.first_chunk + in_run / kChunk};
}

// The chunks of a sequence, one after another.
class Chunks {
 public:
  __device__ Chunks(const StatePlan& plan, int sequence)
      : plan_(plan),
        run_(plan.first_runs[sequence]),
        end_run_(plan.first_runs[sequence + 1]) {
    if (!Done()) current_ = plan_.runs[run_];
  }
  __device__ bool Done() const { return run_ >= end_run_; }
  __device__ const StatePlanRun& run() const { return current_; }
  __device__ int64_t row() const { return int64_t{current_.row} + first_; }
  // Of the plan's chunks.
  __device__ int index() const {
    return current_.first_chunk + first_ / kChunk;
  }
  __device__ int count() const { return min(kChunk, current_.count - first_); }
  __device__ bool EndsRun() const { return first_ + kChunk >= current_.count; }
  __device__ void Next() {
    first_ += kChunk;
    if (first_ < current_.count) return;
    first_ = 0;
    if (++run_ < end_run_) current_ = plan_.runs[run_];
  }

 private:
  const StatePlan& plan_;
  int32_t run_;
  int32_t end_run_;
  int first_ = 0;  // of the run's tokens
  StatePlanRun current_ = {};
};

constexpr int kSolveStride = kChunk + 4;

// Column j of (1 + A)^-1, by thread j of kChunk, to rows of kChunk + kPad.
__device__ inline void SolveInner(const float (*a)[kSolveStride],
                                  Element* out) {
  if (threadIdx.x >= kChunk) return;
  const int j = threadIdx.x;
  float x[kChunk];
#pragma unroll
  for (int t = 0; t < kChunk; ++t) {
    float sums[4] = {};
#pragma unroll
    for (int s = 0; s < t; s += 4) {
      const float4 four = *reinterpret_cast<const float4*>(&a[t][s]);
      sums[0] = fmaf(four.x, x[s], sums[0]);
      if (s + 1 < t) sums[1] = fmaf(four.y, x[s + 1], sums[1]);
      if (s + 2 < t) sums[2] = fmaf(four.z, x[s + 2], sums[2]);
      if (s + 3 < t) sums[3] = fmaf(four.w, x[s + 3], sums[3]);
    }
    const float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    x[t] = t == j ? 1.0f : t < j ? 0.0f : -sum;
    out[t * (kChunk + kPad) + j] = __float2bfloat16_rn(x[t]);
  }
}

// What SolveInner made of a chunk to the workspace.
template <int kThreads>
__device__ void WriteInner(const ChunkArgs& args, int head, int64_t row,
                           int count, const Element* from) {
  constexpr int kPieces = kChunk / 8;
  for (int i = threadIdx.x; i < count * kPieces; i += kThreads) {
    const int t = i / kPieces, piece = i % kPieces * 8;
    *reinterpret_cast<uint4*>(
        args.inner + ((row + t) * args.num_heads + head) * kChunk + piece) =
        *reinterpret_cast<const uint4*>(from + t * (kChunk + kPad) + piece);
  }
}

template <int kKeyCount, bool kDeltaRule>
struct Variant {
  static constexpr int kKeys = kKeyCount;
  static constexpr bool kDelta = kDeltaRule;
};

// fn(Variant) of what `desc` needs.
template <typename Fn>
absl::Status WithVariant(const LinearAttentionDesc& desc, Fn fn) {
  if (desc.key_dim == 64) {
    return desc.delta ? fn(Variant<64, true>()) : fn(Variant<64, false>());
  }
  return desc.delta ? fn(Variant<128, true>()) : fn(Variant<128, false>());
}

// T and P of all chunks (linear_attention_chunks_make_cuda.cu).
absl::Status LaunchMakeChunks(const LinearAttentionDesc& desc,
                              const ChunkArgs& args, CudaStream& stream);
// Of decays a channel, with what RunChunks reads in the place of k and q
// (linear_attention_chunks_channel_cuda.cu).
absl::Status LaunchMakeChannelChunks(const LinearAttentionDesc& desc,
                                     const ChunkArgs& args, CudaStream& stream);
// q and k as features, of all rows (linear_attention_chunks_features_cuda.cu).
struct FeatureArgs {
  CudaMatrix<const Element> q, k;
  Element* to_q;  // [rows, key heads * keys]
  Element* to_k;
  int64_t rows;
  int64_t width;
  FeatureMap map;
};
absl::Status LaunchMapFeatures(const FeatureArgs& args, CudaStream& stream);
// `scales` of all chunks and the normalisers that runs leave, of what
// MakeChunks made (linear_attention_chunks_features_cuda.cu).
absl::Status LaunchNormalisers(const LinearAttentionDesc& desc,
                               const ChunkArgs& args, CudaStream& stream);
// The walk over them (linear_attention_chunks_run_cuda.cu).
absl::Status LaunchRunChunks(const LinearAttentionDesc& desc,
                             const ChunkArgs& args, CudaStream& stream);

}  // namespace inlay::chunks

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_LINEAR_ATTENTION_CHUNKS_CUH_
