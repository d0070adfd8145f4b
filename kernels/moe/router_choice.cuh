// What blocks of router_sm90.cu's cluster tell each other, and the choice of
// experts by what all of them gave.
#ifndef INLAY_KERNELS_MOE_ROUTER_CHOICE_CUH_
#define INLAY_KERNELS_MOE_ROUTER_CHOICE_CUH_

#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/moe/router_shape.h"
#include "kernels/moe/routing.cuh"

namespace inlay {
namespace {

// `address` as AddressAt has it.
__device__ float LoadCluster(uint32_t address) {
  float value;
  asm volatile("ld.shared::cluster.f32 %0, [%1];"
               : "=f"(value)
               : "r"(address)
               : "memory");
  return value;
}
__device__ void StoreAt(uint32_t address, unsigned rank, uint32_t value) {
  asm volatile(
      "st.shared::cluster.u32 [%0], %1;" ::"r"(AddressAt(address, rank)),
      "r"(value)
      : "memory");
}

// Routing of the tokens that are the block's: every kBlocks-th. All threads of
// the block call all of it, one after the other.
template <int kBlocks>
class RouterChoice {
 public:
  __device__ RouterChoice(const RoutingDesc& desc,
                          const MoeRouterParams& params,
                          const RouterShape& shape, int tokens, uint8_t* shared)
      : desc_(desc),
        params_(params),
        shape_(shape),
        own_((tokens - static_cast<int>(ClusterRank()) + kBlocks - 1) /
             kBlocks),
        base_(static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
        keys_(reinterpret_cast<uint32_t*>(shared + shape.parts)),
        chosen_(reinterpret_cast<int*>(keys_ + own_ * shape.logits_row)),
        scores_(reinterpret_cast<double*>(chosen_ + own_ * kMostRouterTopK)) {}

  // Logits, of all slices, and the scores that choose; a thread an expert of a
  // token.
  __device__ void Gather() const {
#pragma unroll 1
    for (int n = static_cast<int>(threadIdx.x); n < own_ * shape_.logits_row;
         n += kRouterThreads) {
      const int own = n / shape_.logits_row;
      const int e = n - own * shape_.logits_row;
      if (e >= desc_.num_experts) {
        keys_[n] = 0;
        continue;
      }
      const uint32_t at =
          base_ + shape_.logits + 4 * (Token(own) * shape_.logits_row + e);
      float slices[kBlocks];
#pragma unroll
      for (unsigned b = 0; b < kBlocks; ++b) {
        slices[b] = LoadCluster(AddressAt(at, b));
      }
      float logit = slices[0];
#pragma unroll
      for (int b = 1; b < kBlocks; ++b) logit += slices[b];
      if (params_.bias != nullptr) logit += params_.bias[e];
      CudaMatrix<float>(params_.routed.logits).row(Token(own))[e] = logit;
      float choice = logit;
      double score = logit;
      if (desc_.score != RoutingScore::kSoftmax) {
        score = ScoreAlone(desc_.score, score);
        if (desc_.score != RoutingScore::kLogitSigmoid) {
          choice = static_cast<float>(score);
        }
        if (params_.routed.correction != nullptr) {
          choice += params_.routed.correction[e];
        }
      }
      scores_[own * desc_.num_experts + e] = score;
      keys_[n] = OrderOf(choice);
    }
    __syncthreads();
  }

  // Leaves experts of the best groups: others' keys become less than any is.
  // A warp a token; some lanes have a group, each some of its experts.
  __device__ void LeaveGroups() const {
    const int own = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int size = desc_.num_experts / desc_.num_groups;
    if (own < own_) {
      uint32_t* keys = keys_ + own * shape_.logits_row;
      int shift = 0;
      while (desc_.num_groups << shift << 1 <= 32) ++shift;
      const int group = lane >> shift;
      const bool exists = group < desc_.num_groups;
      uint32_t best = 0, second = 0;
#pragma unroll 4
      for (int i = lane & ((1 << shift) - 1); exists && i < size;
           i += 1 << shift) {
        const uint32_t key = keys[group * size + i];
        second = max(second, min(best, key));
        best = max(best, key);
      }
#pragma unroll 1
      for (int step = 1 << shift >> 1; step > 0; step /= 2) {
        const uint32_t other = __shfl_xor_sync(kAll, best, step);
        second = max(second, __shfl_xor_sync(kAll, second, step));
        second = max(second, min(best, other));
        best = max(best, other);
      }
      float value = ScoreOf(best);
      if (desc_.group_score == GroupScore::kTopTwo && size > 1) {
        value += ScoreOf(second);
      }
      const uint32_t key = exists ? OrderOf(value) : 0;
      int rank = 0;
#pragma unroll 1
      for (int g = 0; g < desc_.num_groups; ++g) {
        const uint32_t other = __shfl_sync(kAll, key, g << shift);
        rank += other > key || (other == key && g < group);
      }
      const unsigned left = __ballot_sync(kAll, rank < desc_.top_groups);
      __syncwarp();  // keys have been read
#pragma unroll 1
      for (int e = lane; e < desc_.num_experts; e += 32) {
        if ((left >> (e / size << shift) & 1) == 0) keys[e] = 1;
      }
    }
    __syncthreads();
  }

  // An expert's rank: how many are better. Some lanes count for it, each some
  // of all keys, four at a time.
  __device__ void Rank() const {
    const int padded = (desc_.num_experts + 31) / 32 * 32;
    int shift = 0;
    while (shift < 5 && (own_ * padded << shift) * 2 <= kRouterThreads) ++shift;
    const int lanes = 1 << shift;
    const int fours = shape_.logits_row / 4;
#pragma unroll 1
    for (int n = static_cast<int>(threadIdx.x); n < own_ * padded * lanes;
         n += kRouterThreads) {
      const int own = (n >> shift) / padded;
      const int e = (n >> shift) - own * padded;
      const uint32_t* keys = keys_ + own * shape_.logits_row;
      const uint32_t key = keys[min(e, desc_.num_experts - 1)];
      int rank = 0;
#pragma unroll 4
      for (int i = n & (lanes - 1); i < fours; i += lanes) {
        const uint4 four = *reinterpret_cast<const uint4*>(keys + 4 * i);
        // Of equal ones those of lower number are better.
        const uint32_t most = i < e / 4 ? key - 1 : key;
        rank += four.x > most;
        rank += four.y > most;
        rank += four.z > most;
        rank += four.w > most;
      }
      for (int lane = lanes / 2; lane > 0; lane /= 2) {
        rank += __shfl_xor_sync(kAll, rank, lane);
      }
      if (e >= desc_.num_experts || (n & (lanes - 1)) != 0) continue;
      for (int i = e / 4 * 4; i < e; ++i) rank += keys[i] == key;
      if (rank < desc_.top_k) chosen_[own * kMostRouterTopK + rank] = e;
    }
    __syncthreads();
  }

  // Weights, a warp a token; and tells the first block.
  __device__ void Weigh() const {
    const int own = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (own >= own_) return;
    const double* scores = scores_ + own * desc_.num_experts;
    const bool exists = lane < desc_.top_k;
    const int expert = chosen_[own * kMostRouterTopK + (exists ? lane : 0)];
    double score = scores[expert];
    double all = 0.0;
    if (desc_.score == RoutingScore::kSoftmax) {
      // Of the chosen ones the first is the largest, or NaN.
      const double largest = __shfl_sync(kAll, score, 0);
      score = exp(score - largest);
      if (!desc_.normalised) {
#pragma unroll 1
        for (int e = lane; e < desc_.num_experts; e += 32) {
          all += exp(scores[e] - largest);
        }
      }
    }
    if (desc_.normalised) all = exists ? score : 0.0;
    double factor = desc_.scale;
    if (desc_.normalised || desc_.score == RoutingScore::kSoftmax) {
      factor /= WarpSum(all) + kTiny;
    }
    if (!exists) return;
    double weight = score * factor;
    if (desc_.scales_experts) weight *= params_.routed.expert_scales[expert];
    const int slot = Token(own) * desc_.top_k + lane;
    params_.routed.experts[slot] = expert;
    params_.routed.weights[slot] = static_cast<float>(weight);
    StoreAt(base_ + Head::kChosen + 4 * slot, 0, static_cast<uint32_t>(expert));
    const uint32_t mask =
        base_ + Head::kMasks + 8 * expert + Token(own) / 32 * 4;
    asm volatile("red.relaxed.cluster.shared::cluster.or.b32 [%0], %1;" ::"r"(
                     AddressAt(mask, 0)),
                 "r"(1u << Token(own) % 32)
                 : "memory");
  }

 private:
  using Head = RouterHead<kBlocks>;

  __device__ int Token(int own) const {
    return own * kBlocks + static_cast<int>(ClusterRank());
  }

  const RoutingDesc& desc_;
  const MoeRouterParams& params_;
  const RouterShape& shape_;
  const int own_;  // tokens
  const uint32_t base_;
  // Where warps' parts were.
  uint32_t* const keys_;  // [own][logits_row]
  int* const chosen_;     // [own][kMostRouterTopK]
  double* const scores_;  // [own][num_experts]: with softmax logits
};

}  // namespace
}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_ROUTER_CHOICE_CUH_
