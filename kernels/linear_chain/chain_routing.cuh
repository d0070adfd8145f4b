// A token's choice of experts by all blocks alike: each gives some of the
// router's logits, reads all of them, and chooses for itself.
#ifndef INLAY_KERNELS_LINEAR_CHAIN_CHAIN_ROUTING_CUH_
#define INLAY_KERNELS_LINEAR_CHAIN_CHAIN_ROUTING_CUH_

#include "kernels/cuda_float.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/linear_chain/chain_input.cuh"
#include "kernels/linear_chain/chain_shape.h"
#include "kernels/linear_chain/chain_tiles.cuh"
#include "kernels/moe/routing_key.cuh"
#include "kernels/rms_norm/rms_norm.cuh"

namespace inlay {

// The warps that multiply meet.
__device__ inline void ChainMeet() {
  asm volatile("bar.sync 1, %0;" ::"n"(kChainThreads) : "memory");
}

// What a warp multiplies its units of x by for the block's logits: those of
// experts blockIdx.x + i * gridDim.x.
template <typename T>
class ChainRouter {
 public:
  __device__ ChainRouter(const ChainMixture& mixture, int k)
      : mixture_(mixture), k_(k) {}

  // Of the block's i-th logit, at a lane's four columns from `column` on
  // (chain_input.cuh); zeros where there is none.
  __device__ void Load(int i, int column, float (&w)[4]) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) w[j] = 0.0f;
    const int expert = ExpertOf(i);
    if (expert >= mixture_.num_experts || column >= k_) return;
    const int64_t at = int64_t{expert} * k_ + column;
    float2 first, second;
    if (mixture_.float_router) {
      const auto* from = static_cast<const float*>(mixture_.router) + at;
      first = *reinterpret_cast<const float2*>(from);
      second = *reinterpret_cast<const float2*>(from + 8);
    } else {
      const auto* from = static_cast<const T*>(mixture_.router) + at;
      first = WidenPair<T>(*reinterpret_cast<const uint32_t*>(from));
      second = WidenPair<T>(*reinterpret_cast<const uint32_t*>(from + 8));
    }
    w[0] = first.x, w[1] = first.y, w[2] = second.x, w[3] = second.y;
  }
  // The warp's share of a logit, without the norm's factor, from its lanes'.
  __device__ static void Store(ChainChoice& choice,
                               const float (&sums)[kMostChainLogits]) {
#pragma unroll
    for (int i = 0; i < kMostChainLogits; ++i) {
      const float sum = WarpSum(sums[i]);
      if (threadIdx.x % 32 == 0) choice.logits[i][threadIdx.x / 32] = sum;
    }
  }
  __device__ static int ExpertOf(int i) {
    return static_cast<int>(blockIdx.x + i * gridDim.x);
  }

 private:
  const ChainMixture& mixture_;
  int k_;
};

// The block's logits, from the warps' shares, to all blocks.
__device__ inline void GiveLogits(const ChainStage& stage,
                                  const ChainMixture& mixture,
                                  const ChainChoice& choice,
                                  const float* squares, uint32_t tag) {
  const int thread = static_cast<int>(threadIdx.x);
  static_assert(kChainWarps == 16);
  if (thread >= kMostChainLogits * kChainWarps) return;
  float logit = choice.logits[thread / kChainWarps][thread % kChainWarps];
  float square = squares[thread % kChainWarps];
#pragma unroll
  for (int lanes = kChainWarps / 2; lanes > 0; lanes /= 2) {
    logit += __shfl_xor_sync(kChainLanes, logit, lanes);
    square += __shfl_xor_sync(kChainLanes, square, lanes);
  }
  const int expert = static_cast<int>(
      blockIdx.x + thread / kChainWarps * gridDim.x);  // ChainRouter::ExpertOf
  if (thread % kChainWarps != 0 || expert >= mixture.num_experts) return;
  logit *= rsqrtf(fmaf(square, stage.mean, stage.epsilon));
  if (mixture.bias != nullptr) logit += mixture.bias[expert];
  HandOn(mixture.logits + expert, Tagged(__float_as_uint(logit), tag));
}

// The thread's expert's score, thread by thread (routing.h).
__device__ inline double ScoreOfLogit(const ChainMixture& mixture,
                                      ChainChoice& choice, float logit,
                                      bool is_there) {
  if (mixture.sigmoid) return 1.0 / (1.0 + exp(-double{logit}));
  const int warp = static_cast<int>(threadIdx.x) / 32;
  float most = is_there ? logit : __uint_as_float(0xff800000u);  // -infinity
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    most = fmaxf(most, __shfl_xor_sync(kChainLanes, most, lanes));
  }
  if (threadIdx.x % 32 == 0) choice.most[warp] = most;
  ChainMeet();
#pragma unroll
  for (int i = 0; i < kChainWarps; ++i) most = fmaxf(most, choice.most[i]);
  const double own = is_there ? exp(double{logit} - double{most}) : 0.0;
  double sum = own;
  if (32 * warp < mixture.num_experts) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      sum += __shfl_xor_sync(kChainLanes, sum, lanes);
    }
  }
  if (threadIdx.x % 32 == 0) choice.sums[warp] = sum;
  ChainMeet();
  sum = 0.0;
  for (int i = 0; 32 * i < mixture.num_experts; ++i) sum += choice.sums[i];
  return own / sum;
}

// Experts and weights to `choice`, as RoutingTable() gives them. All threads
// that multiply call it; when it returns experts may be read, and weights once
// they have met.
__device__ inline void ChooseExperts(const ChainStage& stage,
                                     const ChainMixture& mixture,
                                     const float* squares, uint32_t tag,
                                     ChainChoice& choice) {
  ChainMeet();  // the warps' shares are there
  GiveLogits(stage, mixture, choice, squares, tag);
  const int thread = static_cast<int>(threadIdx.x);
  const int experts = mixture.num_experts;
  auto* const keys = reinterpret_cast<uint64_t*>(&choice + 1);
  auto* const scores = reinterpret_cast<double*>(keys + experts);
  const bool is_there = thread < experts;
  uint64_t word = 0;
  if (is_there) {
    do {
      ReadHandedOn(mixture.logits + thread, word);
    } while (!HasTag(word, tag));
  }
  __syncwarp();
  const double score = ScoreOfLogit(
      mixture, choice, __uint_as_float(static_cast<uint32_t>(word)), is_there);
  if (is_there) {
    auto judged = static_cast<float>(score);
    if (mixture.correction != nullptr) judged += mixture.correction[thread];
    keys[thread] = KeyOf(judged, thread);
    scores[thread] = score;
  }
  ChainMeet();
  // An expert's rank is how many are better.
  const int sharers = mixture.sharers;
  const int expert = thread / sharers;
  int rank = 0;
  if (expert < experts) {
    const uint64_t own = keys[expert];
    for (int i = thread % sharers; i < experts; i += sharers) {
      rank += keys[i] > own;
    }
  }
  for (int lanes = sharers / 2; lanes > 0; lanes /= 2) {
    rank += __shfl_xor_sync(kChainLanes, rank, lanes);
  }
  if (expert < experts && thread % sharers == 0 && rank < mixture.top_k) {
    choice.experts[rank] = expert;
    choice.chosen[rank] = scores[expert];
  }
  ChainMeet();
  if (thread == 0) {
    Arrive(static_cast<uint32_t>(__cvta_generic_to_shared(&choice.made)));
  }
  if (thread < mixture.top_k) {
    constexpr double kTiny = 1e-20;  // as routing's
    double sum = 0.0;
    for (int i = 0; i < mixture.top_k; ++i) sum += choice.chosen[i];
    choice.weights[thread] =
        static_cast<float>(choice.chosen[thread] * mixture.scale /
                           (mixture.normalised ? sum + kTiny : 1.0));
  }
}

// The factors of the rows of the chosen experts' outputs to `factors`.
__device__ inline void LoadRowFactors(const ChainStage& outputs,
                                      const ChainMixture& mixture,
                                      const int* experts, float* factors) {
  const ChainTiles tiles(outputs);
  const ChainExpertTiles at(outputs, mixture, tiles, experts);
  const int count = tiles.jobs * mixture.top_k * kQuantRows;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kChainThreads) {
    const int item = i / kQuantRows;
    const uint8_t* tile = at.Output(item / mixture.top_k, item % mixture.top_k);
    factors[i] = reinterpret_cast<const float*>(tile)[i % kQuantRows];
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_CHAIN_CHAIN_ROUTING_CUH_
