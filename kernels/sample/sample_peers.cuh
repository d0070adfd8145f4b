// How the blocks that share a row of sample talk to each other: sums and maxima
// over all their threads, through shuffles, shared memory and, between blocks
// of a cluster, stores into each other's shared memory. Knows no sampling.
#ifndef INLAY_KERNELS_SAMPLE_SAMPLE_PEERS_CUH_
#define INLAY_KERNELS_SAMPLE_SAMPLE_PEERS_CUH_

#include <cstdint>

namespace inlay::sample {

inline constexpr int kThreads = 512;
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kBinBits = 11;
inline constexpr int kBins = 1 << kBinBits;
inline constexpr int kSlots = 3;
inline constexpr int kBlocks = 8;       // of a cluster
inline constexpr int kLanesStep = 128;  // logits a warp takes at a time
inline constexpr uint32_t kAllLanes = 0xffffffffu;
inline constexpr uint32_t kNoLimit = 0xffffffffu;

// Between the blocks of a row.
template <int kCluster>
struct Peers {
  static __device__ int Rank() { return 0; }
  static __device__ void Sync() { __syncthreads(); }
  template <typename T>
  static __device__ void Store(T* at, int, T value) {
    *at = value;
  }
  template <typename T>
  static __device__ T Load(const T* at, int) {
    return *at;
  }
};

#if __CUDA_ARCH__ >= 900
// Block `rank` has its variable of the same name at this address.
__device__ inline uint32_t PeerAddress(const void* at, int rank) {
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(address)
      : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(at))), "r"(rank));
  return address;
}

template <>
struct Peers<kBlocks> {
  static __device__ int Rank() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return static_cast<int>(rank);
  }
  // Release and acquire, for every thread of the cluster.
  static __device__ void Sync() {
    asm volatile(
        "barrier.cluster.arrive;\n"
        "barrier.cluster.wait;" ::
            : "memory");
  }
  static __device__ void Store(uint64_t* at, int rank, uint64_t value) {
    asm volatile(
        "st.shared::cluster.u64 [%0], %1;" ::"r"(PeerAddress(at, rank)),
        "l"(value)
        : "memory");
  }
  static __device__ uint64_t Load(const uint64_t* at, int rank) {
    uint64_t value;
    asm volatile("ld.shared::cluster.u64 %0, [%1];"
                 : "=l"(value)
                 : "r"(PeerAddress(at, rank))
                 : "memory");
    return value;
  }
  static __device__ uint32_t Load(const uint32_t* at, int rank) {
    uint32_t value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];"
                 : "=r"(value)
                 : "r"(PeerAddress(at, rank))
                 : "memory");
    return value;
  }
};
#endif

template <int kCluster>
struct Shared {
  uint32_t count[kBins];
  uint64_t mass[kBins];
  // Written by all blocks of the row. Two of them, so that a block that is one
  // exchange ahead does not overwrite what another still reads.
  uint64_t exchange[2][kSlots][kCluster];
  uint64_t found[4];  // written by one thread of the row
  uint64_t warp[kSlots][kWarps];
};

__device__ inline uint64_t Greater(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

struct Totals {
  uint64_t most;
  uint64_t sum;
  uint64_t most_too;

  __device__ void Add(const Totals& other) {
    most = Greater(most, other.most);
    sum += other.sum;
    most_too = Greater(most_too, other.most_too);
  }
  __device__ void AddLanes() {
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) {
      Add({__shfl_xor_sync(kAllLanes, most, lane),
           __shfl_xor_sync(kAllLanes, sum, lane),
           __shfl_xor_sync(kAllLanes, most_too, lane)});
    }
  }
};

// The sum over a warp's lanes up to and including this one.
__device__ inline uint64_t SumUpToLane(uint64_t x) {
  const int self = threadIdx.x % 32;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint64_t below = __shfl_up_sync(kAllLanes, x, step);
    if (self >= step) x += below;
  }
  return x;
}

}  // namespace inlay::sample

#endif  // INLAY_KERNELS_SAMPLE_SAMPLE_PEERS_CUH_
