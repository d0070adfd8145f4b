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
  Element* seen;   // P: likewise
};

struct Gate {
  float log = 0.0f;  // of the decay, to base 2
  float beta = 0.0f;
};

// Of the thread's token: threads 0 to kChunk - 1.
__device__ inline Gate LoadGate(const ChunkArgs& args, int head, int64_t row,
                                int count) {
  Gate gate;
  const int t = threadIdx.x;
  if (t >= count) return gate;
  gate.beta = args.beta.data == nullptr ? 1.0f : args.beta.row(row + t)[head];
  if (args.decay.data != nullptr) {
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

// T and P of all chunks (linear_attention_chunks_make_cuda.cu).
absl::Status LaunchMakeChunks(const LinearAttentionDesc& desc,
                              const ChunkArgs& args, CudaStream& stream);
// The walk over them (linear_attention_chunks_run_cuda.cu).
absl::Status LaunchRunChunks(const LinearAttentionDesc& desc,
                             const ChunkArgs& args, CudaStream& stream);

}  // namespace inlay::chunks

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_LINEAR_ATTENTION_CHUNKS_CUH_
