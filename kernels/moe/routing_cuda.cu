// moe_routing on CUDA, its arithmetic in routing.cuh.
//
// RouteTokens: a warp a token, kTokens a block. Shared memory: TokenScores. One
// token's slots are listed by its warp.
// RouteFewTokens: all tokens in one block, which lists their slots too.
// ListSlots, for more tokens: a block an expert counts the slots of the experts
// before it and lists its own; no atomics, so that lists ascend. None is bound
// by bandwidth: all are some microseconds beside the products of experts.
#include <algorithm>

#include "kernels/moe/routing.cuh"

namespace inlay {
namespace {

constexpr int kTokens = 4;  // a block
constexpr int kListThreads = 256;

// With more tokens or slots a launch of its own lists them sooner.
constexpr int kFewTokens = 32;
constexpr int kFewSlots = 512;
constexpr int kFewExperts = 256;
// Of a block's dynamic shared memory, where devices have no more than 99 KB.
constexpr size_t kFewBytes = 92 << 10;

// The slots of the only token, by expert.
__device__ void ListOne(const RoutingDesc& desc, const RoutingParams& params) {
  const int lane = threadIdx.x % 32;
  for (int e = lane; e <= desc.num_experts; e += 32) {
    int before = 0;
    for (int r = 0; r < desc.top_k; ++r) before += params.experts[r] < e;
    params.offsets[e] = before;
  }
  for (int r = lane; r < desc.top_k; r += 32) {
    int before = 0;
    for (int i = 0; i < desc.top_k; ++i) {
      // A table may name an expert twice.
      before += params.experts[i] < params.experts[r] ||
                (params.experts[i] == params.experts[r] && i < r);
    }
    params.slots[before] = r;
  }
}

template <int kPerLane>
__device__ void RouteLogits(const RoutingDesc& desc,
                            const RoutingParams& params, int64_t token,
                            uint8_t* scores) {
  const float* row = CudaMatrix<const float>(params.logits).row(token);
  float logits[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int e = static_cast<int>(threadIdx.x) % 32 + 32 * i;
    logits[i] = e < desc.num_experts ? row[e] : kNoLogit;
  }
  RouteToken(desc, params, token, logits, {scores, desc.num_experts});
}

template <int kPerLane>
__global__ void __launch_bounds__(32 * kTokens)
    RouteTokens(const __grid_constant__ RoutingDesc desc,
                const __grid_constant__ RoutingParams params, int64_t tokens) {
  LetNextBegin();
  WaitForPrevious();
  extern __shared__ __align__(8) uint8_t token_scores[];
  const int warp = threadIdx.x / 32;
  const int64_t token = int64_t{blockIdx.x} * kTokens + warp;
  if (token >= tokens) return;
  RouteLogits<kPerLane>(
      desc, params, token,
      token_scores + warp * TokenScores::Bytes(desc.num_experts));
  __syncwarp();
  if (tokens == 1) ListOne(desc, params);
}

// Lists slots by counting, for a table may name an expert twice: a thread a
// slot finds how many come before it, and a thread an expert how many before
// its first. All threads of the block call it, once all met.
__device__ void ListByCounting(const RoutingDesc& desc,
                               const RoutingParams& params, int slots,
                               const int* experts) {
  for (int n = threadIdx.x; n < slots + desc.num_experts + 1; n += blockDim.x) {
    const bool is_slot = n < slots;
    const int expert = is_slot ? experts[n] : n - slots;
    int before = 0;
    for (int i = 0; i < slots; ++i) {
      before +=
          experts[i] < expert || (is_slot && experts[i] == expert && i < n);
    }
    if (is_slot) {
      params.slots[before] = n;
    } else {
      params.offsets[expert] = before;
    }
  }
}

// A warp a token.
template <int kPerLane>
__global__ void __launch_bounds__(32 * kFewTokens)
    RouteFewTokens(const __grid_constant__ RoutingDesc desc,
                   const __grid_constant__ RoutingParams params, int tokens) {
  LetNextBegin();
  extern __shared__ __align__(8) uint8_t token_scores[];
  __shared__ int experts[kFewSlots];
  __shared__ unsigned long long masks[kFewExperts];
  __shared__ int starts[kFewExperts];
  __shared__ int sums[32];
  const int warp = threadIdx.x / 32;
  for (int e = threadIdx.x; e < kFewExperts; e += blockDim.x) masks[e] = 0;
  __syncthreads();
  WaitForPrevious();
  if (warp < tokens) {
    RouteLogits<kPerLane>(
        desc, params, warp,
        token_scores + warp * TokenScores::Bytes(desc.num_experts));
    for (int r = threadIdx.x % 32; r < desc.top_k; r += 32) {
      const int slot = warp * desc.top_k + r;
      experts[slot] = params.experts[slot];
      atomicOr(&masks[experts[slot]], 1ull << warp);
    }
  }
  __syncthreads();
  if (desc.hashed) {
    ListByCounting(desc, params, tokens * desc.top_k, experts);
  } else {
    ListByMasks(desc, params, tokens, {masks, experts, starts, sums});
  }
}

// The number of threads of the block for which `yes` holds, before this one
// and in all.
struct BlockCount {
  __device__ BlockCount(bool yes, int* scratch) {
    const unsigned votes = __ballot_sync(kAll, yes);
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) scratch[warp] = __popc(votes);
    __syncthreads();
    before = __popc(votes & ((1u << threadIdx.x % 32) - 1));
    all = 0;
    for (int i = 0; i < kListThreads / 32; ++i) {
      if (i < warp) before += scratch[i];
      all += scratch[i];
    }
    __syncthreads();
  }
  int before;
  int all;
};

__global__ void __launch_bounds__(kListThreads)
    ListSlots(const int32_t* experts, int num_slots, int num_experts,
              int32_t* offsets, int32_t* slots) {
  LetNextBegin();
  WaitForPrevious();
  __shared__ int scratch[kListThreads / 32];
  const int own = blockIdx.x;
  int less = 0;
  for (int i = threadIdx.x; i < num_slots; i += kListThreads) {
    less += experts[i] < own;
  }
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    less += __shfl_xor_sync(kAll, less, lane);
  }
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = less;
  __syncthreads();
  int next = 0;
  for (int i = 0; i < kListThreads / 32; ++i) next += scratch[i];
  __syncthreads();
  if (threadIdx.x == 0) offsets[own] = next;
  for (int base = 0; base < num_slots; base += kListThreads) {
    const int i = base + threadIdx.x;
    const bool mine = i < num_slots && experts[i] == own;
    const BlockCount count(mine, scratch);
    if (mine) slots[next + count.before] = i;
    next += count.all;
  }
  if (own == num_experts - 1 && threadIdx.x == 0) offsets[num_experts] = next;
}

}  // namespace

absl::Status RunRoutingCuda(const RoutingDesc& desc,
                            const RoutingParams& params, Stream& stream) {
  constexpr char kWhat[] = "moe_routing";
  CudaStream& cuda = CudaStream::Of(stream);
  const int64_t tokens = params.logits.rows();
  const int64_t slots = tokens * desc.top_k;
  const auto bytes = static_cast<size_t>(TokenScores::Bytes(desc.num_experts));
  const size_t few_bytes = static_cast<size_t>(tokens) * bytes;
  const bool has_room =
      few_bytes <= kFewBytes || cuda.sm() == 80 || cuda.sm() == 90;
  if (tokens > 1 && tokens <= kFewTokens && slots <= kFewSlots &&
      desc.num_experts <= kFewExperts && has_room) {
    // As many threads as there are experts.
    const auto warps = static_cast<int>(
        std::max<int64_t>(tokens, (desc.num_experts + 31) / 32));
    return LaunchCuda(
        kWhat, cuda, {1, 32 * warps, few_bytes},
        desc.num_experts <= 128 ? RouteFewTokens<4> : RouteFewTokens<8>, desc,
        params, static_cast<int>(tokens));
  }
  INLAY_RETURN_IF_ERROR(LaunchCuda(
      kWhat, cuda,
      {(tokens + kTokens - 1) / kTokens, 32 * kTokens, kTokens * bytes},
      desc.num_experts <= 128   ? RouteTokens<4>
      : desc.num_experts <= 256 ? RouteTokens<8>
                                : RouteTokens<kMostPerLane>,
      desc, params, tokens));
  if (tokens == 1) return absl::OkStatus();
  return LaunchCuda(kWhat, cuda, {desc.num_experts, kListThreads}, ListSlots,
                    params.experts, static_cast<int>(slots), desc.num_experts,
                    params.offsets, params.slots);
}

}  // namespace inlay
