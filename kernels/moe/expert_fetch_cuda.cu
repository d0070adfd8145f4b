// expert_fetch on CUDA, in two launches.
//
// PlanFetch: one block decides. A thread has an expert and a slot; experts
// without a slot are counted by votes, slots to give away are ranked by
// counting those that were used before. Shared memory: 12 KB. A few
// microseconds.
//
// CopyExperts: blocks take pieces of kPiece bytes of what is to be fetched in
// turn, four loads of 16 bytes a thread in flight: the bus (PCIe gen 5 x16: 55
// GB/s) wants some 100 KB on their way, which a few SMs have. Where nothing is
// missing blocks end at once. The slots stay in the level-2 cache for the
// products, what came from the host does not.
#include <algorithm>

#include "kernels/cuda_launch.cuh"
#include "kernels/moe/expert_fetch.h"

namespace inlay {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kWarp = 32;
constexpr int kMostWarps = kMaxExperts / kWarp;
constexpr int kCopyThreads = 256;
constexpr int kUnroll = 4;
constexpr int64_t kPiece = kCopyThreads * kUnroll * int64_t{sizeof(uint4)};

// What a thread's flag is among those of the block.
struct BlockRank {
  // All threads call it. `scratch`: [kMostWarps], free before and after.
  __device__ BlockRank(bool yes, int* scratch) {
    const unsigned votes = __ballot_sync(kAll, yes);
    const int warp = threadIdx.x / kWarp;
    const int num_warps = blockDim.x / kWarp;
    if (threadIdx.x % kWarp == 0) scratch[warp] = __popc(votes);
    __syncthreads();
    before = __popc(votes & ((1u << threadIdx.x % kWarp) - 1));
    all = 0;
    for (int w = 0; w < num_warps; ++w) {
      if (w < warp) before += scratch[w];
      all += scratch[w];
    }
    __syncthreads();
  }
  int before;  // threads before this one for which `yes` holds
  int all;
};

struct FetchPlaces {
  FetchPlaces(const ExpertFetchDesc& desc, const ExpertFetchParams& params)
      : num_matrices(desc.num_matrices) {
    for (int m = 0; m < num_matrices; ++m) {
      host[m] = params.host[m];
      slots[m] = params.slots[m];
      pitch[m] = static_cast<int64_t>(desc.pitch(m));
    }
  }
  int num_matrices;
  const std::byte* host[kMaxExpertMatrices];
  std::byte* slots[kMaxExpertMatrices];
  int64_t pitch[kMaxExpertMatrices];
};

__global__ void __launch_bounds__(kMaxExperts)
    PlanFetch(const __grid_constant__ FetchPlaces places,
              const __grid_constant__ ExpertFetchState state,
              const int32_t* offsets, int num_experts, int num_slots) {
  LetNextBegin();
  WaitForPrevious();
  __shared__ int64_t last_use[kMaxExperts];
  __shared__ int32_t given[kMaxExperts];  // slots, in the order they are given
  __shared__ int scratch[kMostWarps];
  const int own = threadIdx.x;  // an expert and a slot
  const bool needed = own < num_experts && offsets[own + 1] > offsets[own];
  const int slot = needed ? state.slot_of[own] : -1;
  if (own < num_slots) last_use[own] = state.last_use[own];
  const ExpertFetchCounts counts = *state.counts;
  const int64_t now = counts.steps + 1;
  __syncthreads();
  if (slot >= 0) last_use[slot] = now;
  const BlockRank hit(slot >= 0, scratch);
  const bool missing = needed && slot < 0;
  const BlockRank miss(missing, scratch);
  const int free = num_slots - hit.all;
  const int copies = min(free, miss.all);
  if (copies > 0 && own < num_slots && last_use[own] != now) {
    const int64_t mine = last_use[own];
    int rank = 0;
    for (int s = 0; s < num_slots; ++s) {
      rank += last_use[s] < mine || (last_use[s] == mine && s < own);
    }
    given[rank] = own;
  }
  __syncthreads();
  if (missing && miss.before < copies) {
    const int to = given[miss.before];
    const int old = state.expert_of[to];
    if (old >= 0) state.slot_of[old] = -1;  // not needed: nobody else's thread
    state.slot_of[own] = to;
    state.expert_of[to] = own;
    last_use[to] = now;
    state.copies[miss.before] = {own, to};
    for (int m = 0; m < places.num_matrices; ++m) {
      int64_t* table = state.table + m * num_experts;
      if (old >= 0) {
        table[old] = places.host[m] - places.slots[m] + old * places.pitch[m];
      }
      table[own] = to * places.pitch[m];
    }
  }
  __syncthreads();
  if (own < num_slots) state.last_use[own] = last_use[own];
  if (own == 0) {
    *state.num_copies = copies;
    *state.counts = {now, counts.hits + hit.all, counts.fetches + copies,
                     counts.direct + miss.all - copies};
  }
}

__global__ void __launch_bounds__(kCopyThreads)
    CopyExperts(const __grid_constant__ FetchPlaces places,
                const ExpertCopy* copies, const int32_t* num_copies) {
  LetNextBegin();
  WaitForPrevious();
  const int count = *num_copies;
  int64_t pieces[kMaxExpertMatrices] = {};
  int64_t pieces_each = 0;
#pragma unroll
  for (int m = 0; m < kMaxExpertMatrices; ++m) {
    if (m < places.num_matrices) {
      pieces[m] = (places.pitch[m] + kPiece - 1) / kPiece;
      pieces_each += pieces[m];
    }
  }
  for (int64_t i = blockIdx.x; i < count * pieces_each; i += gridDim.x) {
    const ExpertCopy copy = copies[i / pieces_each];
    int64_t piece = i % pieces_each;
#pragma unroll
    for (int m = 0; m < kMaxExpertMatrices; ++m) {
      if (m >= places.num_matrices) break;
      if (piece < pieces[m]) {
        const int64_t pitch = places.pitch[m];
        const auto* from = reinterpret_cast<const uint4*>(places.host[m] +
                                                          copy.expert * pitch);
        auto* to =
            reinterpret_cast<uint4*>(places.slots[m] + copy.slot * pitch);
        const int64_t end = pitch / int64_t{sizeof(uint4)};
        const int64_t first =
            piece * (kPiece / int64_t{sizeof(uint4)}) + threadIdx.x;
        uint4 v[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          const int64_t at = first + u * kCopyThreads;
          if (at < end) v[u] = __ldcs(from + at);
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          const int64_t at = first + u * kCopyThreads;
          if (at < end) to[at] = v[u];
        }
        break;
      }
      piece -= pieces[m];
    }
  }
}

}  // namespace

absl::Status RunExpertFetchCuda(const ExpertFetchDesc& desc,
                                const ExpertFetchParams& params,
                                Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  const FetchPlaces places(desc, params);
  const int threads = (desc.num_experts + kWarp - 1) / kWarp * kWarp;
  INLAY_RETURN_IF_ERROR(LaunchCuda(
      "expert_fetch", cuda, {1, threads}, PlanFetch, places, params.state,
      params.offsets, desc.num_experts, desc.num_slots));
  return LaunchCuda("expert_fetch", cuda, {cuda.num_sms(), kCopyThreads},
                    CopyExperts, places, params.state.copies,
                    params.state.num_copies);
}

}  // namespace inlay
