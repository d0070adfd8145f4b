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

// Whose logit is a block's i-th.
__device__ inline int ExpertOfBlock(int i) {
  return static_cast<int>(blockIdx.x + i * gridDim.x);
}

// What a warp multiplies its units of x by for the block's logits.
template <typename T>
class ChainRouter {
 public:
  __device__ ChainRouter(const ChainMixture& mixture, int k)
      : mixture_(mixture), k_(k) {}

  // Whether the block has an i-th logit.
  __device__ bool Has(int i) const {
    return ExpertOfBlock(i) < mixture_.logit_count();
  }
  // Of it, at a lane's four columns from `column` on (chain_input.cuh); zeros
  // where there is none.
  __device__ void Load(int i, int column, float (&w)[4]) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) w[j] = 0.0f;
    if (!Has(i) || column >= k_) return;
    const int expert = ExpertOfBlock(i);
    const bool is_gate = expert == mixture_.num_experts;
    const void* const matrix = is_gate ? mixture_.shared_gate : mixture_.router;
    const int64_t at = is_gate ? column : int64_t{expert} * k_ + column;
    float2 first, second;
    if (mixture_.float_router) {
      const auto* from = static_cast<const float*>(matrix) + at;
      first = *reinterpret_cast<const float2*>(from);
      second = *reinterpret_cast<const float2*>(from + 8);
    } else {
      const auto* from = static_cast<const T*>(matrix) + at;
      first = WidenPair<T>(*reinterpret_cast<const uint32_t*>(from));
      second = WidenPair<T>(*reinterpret_cast<const uint32_t*>(from + 8));
    }
    w[0] = first.x, w[1] = first.y, w[2] = second.x, w[3] = second.y;
  }
  // The warp's share of a row's logits, without the norm's factor, from its
  // lanes'.
  __device__ static void Store(float (&shares)[kMostChainLogits][kChainWarps],
                               const float (&sums)[kMostChainLogits]) {
#pragma unroll
    for (int i = 0; i < kMostChainLogits; ++i) {
      const float sum = WarpSum(sums[i]);
      if (threadIdx.x % 32 == 0) shares[i][threadIdx.x / 32] = sum;
    }
  }

 private:
  const ChainMixture& mixture_;
  int k_;
};

// Where a row's logit is handed on.
__device__ inline uint32_t* LogitAt(const ChainMixture& mixture, int row,
                                    int expert, uint8_t* handed) {
  return reinterpret_cast<uint32_t*>(
      handed + ChainHandedAt(mixture.logits +
                             (row * mixture.logit_count() + expert) * 4));
}

// The block's logits, from the warps' shares, to all blocks.
template <int kRows>
__device__ void GiveLogits(const ChainStage& stage, const ChainMixture& mixture,
                           const ChainChoice& choice, const float* squares,
                           uint8_t* handed) {
  const int thread = static_cast<int>(threadIdx.x);
  static_assert(kChainWarps == 16);
  if (thread >= kRows * kMostChainLogits * kChainWarps) return;
  const int row = thread / (kMostChainLogits * kChainWarps);
  const int i = thread / kChainWarps % kMostChainLogits;
  float logit = choice.shares[row][i][thread % kChainWarps];
  float square = squares[row * kChainWarps + thread % kChainWarps];
#pragma unroll
  for (int lanes = kChainWarps / 2; lanes > 0; lanes /= 2) {
    logit += __shfl_xor_sync(kChainLanes, logit, lanes);
    square += __shfl_xor_sync(kChainLanes, square, lanes);
  }
  const int expert = ExpertOfBlock(i);
  if (thread % kChainWarps != 0 || expert >= mixture.logit_count()) return;
  logit *= rsqrtf(fmaf(square, stage.mean, stage.epsilon));
  if (mixture.bias != nullptr && expert < mixture.num_experts) {
    logit += mixture.bias[expert];
  }
  HandOn(LogitAt(mixture, row, expert, handed), __float_as_uint(logit));
}

// The weight of the expert of rank `rank`, by logits of all experts and those
// of the chosen, best first, as RoutingTable() gives it. All lanes of a warp
// call it.
__device__ inline float WeightOfRank(const ChainMixture& mixture,
                                     const float* logits, const float* chosen,
                                     int rank) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const double most = mixture.sigmoid ? 0.0 : double{chosen[0]};
  const auto score = [&](float logit) {
    return mixture.sigmoid ? 1.0 / (1.0 + exp(-double{logit}))
                           : exp(double{logit} - most);
  };
  double own = rank < mixture.top_k ? score(chosen[rank]) : 0.0;
  double sum = mixture.normalised ? own : 0.0;
  if (!mixture.normalised && !mixture.sigmoid) {
    for (int i = lane; i < mixture.num_experts; i += 32) {
      sum += score(logits[i]);
    }
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    sum += __shfl_xor_sync(kChainLanes, sum, lanes);
  }
  if (!mixture.normalised && mixture.sigmoid) sum = 1.0;
  constexpr double kTiny =
      1e-20;  // as routing_cuda.cu's; of sigmoids that are 0
  return static_cast<float>(own * double{mixture.scale} / (sum + kTiny));
}

__device__ inline float ReadLogit(const uint32_t* from) {
  uint32_t word;
  do {
    ReadHandedOn(from, word);
  } while (word == 0);
  return __uint_as_float(~word);
}

// Leaves experts of the best groups: others' keys become 0. `values`: room for
// a word a group. All threads that multiply call it, when keys are there; when
// it returns those that are left are.
__device__ inline void LeaveGroups(const ChainMixture& mixture, uint64_t* keys,
                                   uint32_t* values) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int groups = mixture.num_groups;
  const int size = mixture.num_experts / groups;
  // A warp a group.
#pragma unroll 1
  for (int g = thread / 32; g < groups; g += kChainWarps) {
    uint32_t best = 0, second = 0;
#pragma unroll 1
    for (int i = lane; i < size; i += 32) {
      const auto order = static_cast<uint32_t>(keys[g * size + i] >> 32);
      second = max(second, min(best, order));
      best = max(best, order);
    }
    const uint32_t most = __reduce_max_sync(kChainLanes, best);
    const unsigned have = __ballot_sync(kChainLanes, best == most);
    const uint32_t other = lane == __ffs(have) - 1 ? second : best;
    const uint32_t next = __reduce_max_sync(kChainLanes, other);
    float value = ScoreOf(most);
    if (mixture.two_of_group && size > 1) value += ScoreOf(next);
    if (lane == 0) values[g] = OrderOf(value);
  }
  ChainMeet();
  if (thread < mixture.num_experts) {
    const int own = thread / size;
    const uint32_t value = values[own];
    int rank = 0;
#pragma unroll 1
    for (int g = 0; g < groups; ++g) {
      rank += values[g] > value || (g < own && values[g] == value);
    }
    if (rank >= mixture.top_groups) keys[thread] = 0;
  }
  ChainMeet();
}

// The tokens' experts to `choice`, and to who copies. All threads that multiply
// call it; when it returns experts may be read.
template <int kRows>
__device__ void ChooseExperts(const ChainStage& stage,
                              const ChainMixture& mixture, const float* squares,
                              uint8_t* handed, ChainChoice& choice) {
  ChainMeet();  // the warps' shares are there
  GiveLogits<kRows>(stage, mixture, choice, squares, handed);
  const int thread = static_cast<int>(threadIdx.x);
  const int experts = mixture.num_experts;
  auto* const keys = reinterpret_cast<uint64_t*>(&choice + 1);
  auto* logits = reinterpret_cast<float*>(keys + experts);
  const int sharers = mixture.sharers;
  const int expert = thread / sharers;
#pragma unroll 1
  for (int row = 0; row < kRows; ++row, logits += experts) {
    if (thread < experts) {
      const float logit = ReadLogit(LogitAt(mixture, row, thread, handed));
      // Scores grow with logits.
      float judged = logit;
      if (mixture.sigmoid) {
        judged = static_cast<float>(1.0 / (1.0 + exp(-double{logit})));
        if (mixture.correction != nullptr) judged += mixture.correction[thread];
      }
      keys[thread] = KeyOf(judged, thread);
      logits[thread] = logit;
    }
    ChainMeet();
    if (mixture.top_groups < mixture.num_groups) {
      // The warps' shares of logits have been read.
      LeaveGroups(mixture, keys,
                  reinterpret_cast<uint32_t*>(&choice.shares[0][0][0]));
    }
    // An expert's rank is how many are better.
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
      choice.experts[row * mixture.top_k + rank] = expert;
      choice.chosen[row * mixture.top_k + rank] = logits[expert];
    }
    ChainMeet();
  }
  if (thread == 0) {
    Arrive(static_cast<uint32_t>(__cvta_generic_to_shared(&choice.made)));
  }
}

// What the experts' outputs need, once experts are chosen: their weights, and
// of their matrices' rows the factors, to `factors`, unless they are kPlain and
// have none, and biases, behind them. There when all threads have waited for
// their copies and met.
template <int kRows, bool kPlain>
__device__ void PrepareOutputs(const ChainStage& outputs,
                               const ChainMixture& mixture, uint8_t* handed,
                               ChainChoice& choice, float* factors) {
  const ChainTiles tiles(outputs);
  const ChainExpertTiles at(outputs, mixture, tiles, choice.experts);
  const int parts = mixture.parts();
  const int count = tiles.jobs * parts * kQuantRows;
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(factors));
  const int thread = static_cast<int>(threadIdx.x);
  const auto copy = [](uint32_t there, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(there),
                 "l"(from)
                 : "memory");
  };
#pragma unroll 1
  for (int i = thread; i < count; i += kChainThreads) {
    const int item = i / kQuantRows, row = i % kQuantRows;
    const int tile = item / parts, slot = item - tile * parts;
    if (!kPlain) copy(to + i * 4, at.OutputAt(tile, slot) + row * 4);
    if (outputs.bias == nullptr || slot == mixture.slots) continue;
    const int own = (tiles.first_job + tile) * kQuantRows + row;
    copy(to + (ChainRowFactors(outputs, mixture) + i) * 4,
         outputs.bias + int64_t{choice.experts[slot]} * outputs.n + own);
  }
  // A warp a row.
  const int row = thread / 32, lane = thread % 32;
  if (row >= kRows) return;
  const auto* const logits =
      reinterpret_cast<const float*>(
          reinterpret_cast<const uint64_t*>(&choice + 1) +
          mixture.num_experts) +
      row * mixture.num_experts;
  const int first = row * mixture.top_k;
  const float weight =
      WeightOfRank(mixture, logits, choice.chosen + first, lane);
  if (lane < mixture.top_k) choice.weights[first + lane] = weight;
  if (lane != mixture.top_k || !mixture.has_shared()) return;
  float shared = 1.0f;
  if (mixture.shared_gate != nullptr) {
    const float logit =
        ReadLogit(LogitAt(mixture, row, mixture.num_experts, handed));
    shared = 1.0f / (1.0f + expf(-logit));
  }
  choice.weights[mixture.slots + row] = shared;
}
__device__ inline void AwaitRowFactors() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_CHAIN_CHAIN_ROUTING_CUH_
