// Hopper's instructions that the kernels for few rows are made of (PTX ISA,
// "Parallel Synchronization and Communication Instructions", "Data Movement"):
// barriers in shared memory, clusters, tensor copies. Addresses are of the
// shared window.
#ifndef INLAY_KERNELS_GEMM_GEMV_SM90_CUH_
#define INLAY_KERNELS_GEMM_GEMV_SM90_CUH_

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace inlay {

__device__ inline unsigned ClusterRank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// The barrier of the cluster in two halves, without ordering of memory.
__device__ inline void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void ClusterWait() {
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
// All that the cluster's blocks did before is done, and seen by all after it.
__device__ inline void SyncCluster() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}
// `address` of this block as one of block `rank` of the cluster.
__device__ inline uint32_t AddressAt(uint32_t address, unsigned rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(there)
      : "r"(address), "r"(rank));
  return there;
}
__device__ inline void InitBarrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier),
               "r"(arrivals)
               : "memory");
}
__device__ inline void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier)
               : "memory");
}
__device__ inline void ArriveAt(uint32_t barrier, unsigned rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(
                   AddressAt(barrier, rank))
               : "memory");
}
__device__ inline void Expect(uint32_t barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
      "r"(bytes)
      : "memory");
}
__device__ inline void Await(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// The box of `map` (MapOfWeights) from `row` of each half and from the
// `column`-th 64 columns on; its bytes are counted at `barrier`. Weights go
// first from the level-2 cache: nobody reads them again before all others went
// by, whereas they would displace everything else, kernels' code above all.
__device__ inline void CopyBox(uint32_t to, const CUtensorMap& map, int row,
                               int column, uint32_t barrier) {
  asm volatile(
      "{\n.reg .b64 policy;\n"
      "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes.L2::cache_hint [%0], [%1, {%2, %3, %2, %4}], [%5], policy;\n}\n" ::
          "r"(to),
      "l"(&map), "r"(0), "r"(row), "r"(column), "r"(barrier)
      : "memory");
}
// The box of `map` (MapOfColumns) from the `column`-th column on.
__device__ inline void CopyColumns(uint32_t to, const CUtensorMap& map,
                                   int column, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(column), "r"(0), "r"(barrier)
      : "memory");
}
// `bytes` from global memory, counted at `barrier`: multiples of 16.
__device__ inline void CopyRow(uint32_t to, const void* from, uint32_t bytes,
                               uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1], %2, [%3];" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// Four 8x8 matrices of 16-bit elements, a register each; lane l gives the
// address of row l % 8 of matrix l / 8.
__device__ inline void LoadMatrices(uint32_t address, uint32_t (&v)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(address)
               : "memory");
}
// Stores 16 bytes in a block of the cluster and counts them at its barrier,
// which makes them visible to who waits there: no fence.
__device__ inline void StoreAt(uint32_t address, uint32_t barrier,
                               unsigned rank, const float (&v)[4]) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], "
      "{%1,%2,%3,%4}, [%5];" ::"r"(AddressAt(address, rank)),
      "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(AddressAt(barrier, rank))
      : "memory");
}

// `bytes` of this block's shared memory to block `rank`'s, counted at its
// barrier: multiples of 16. `to` and `barrier` are addresses as of this block.
__device__ inline void SendBytes(uint32_t to, uint32_t from, uint32_t bytes,
                                 uint32_t barrier, unsigned rank) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
      "[%0], [%1], %2, [%3];" ::"r"(AddressAt(to, rank)),
      "r"(from), "r"(bytes), "r"(AddressAt(barrier, rank))
      : "memory");
}

// Turns of a ring: which stage is next, and the parity of its barriers.
struct RingTurn {
  __device__ void Next(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  int stage = 0;
  uint32_t parity = 0;
};

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_GEMV_SM90_CUH_
