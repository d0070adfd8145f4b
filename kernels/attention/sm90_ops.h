// Hopper's instructions that attention uses, one wrapper each: barriers in
// shared memory, the copy engine, matrix instructions, register hand-over.
// Source: PTX ISA 9.0.
#ifndef INLAY_KERNELS_ATTENTION_SM90_OPS_H_
#define INLAY_KERNELS_ATTENTION_SM90_OPS_H_

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace inlay::sm90 {

__device__ inline uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// --- mbarrier: `parity` is that of the phase waited for, 0 first. ---

__device__ inline void InitBarrier(uint64_t* barrier, int arrivals) {
  asm volatile(
      "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)),
      "r"(arrivals)
      : "memory");
}

// After InitBarrier, before others (the copy engine too) use the barriers.
__device__ inline void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void Arrive(uint64_t* barrier) {
  asm volatile(
      "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier))
      : "memory");
}

__device__ inline void ArriveExpect(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   SharedAddress(barrier)),
               "r"(bytes)
               : "memory");
}

__device__ inline void Wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra again;\n"
      "}\n" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}

// Named barrier `id` (1 to 15) of `threads` threads.
__device__ inline void SyncNamed(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void ArriveNamed(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// --- copies ---

__device__ inline void CopyBox4(const CUtensorMap* map, uint64_t* barrier,
                                uint32_t to, int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(map), "r"(SharedAddress(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

__device__ inline void CopyBox3(const CUtensorMap* map, uint64_t* barrier,
                                uint32_t to, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
      "l"(map), "r"(SharedAddress(barrier)), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

__device__ inline void PrefetchMap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// 16 bytes, aligned so, past the first-level cache.
__device__ inline void CopyAsync16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
}
__device__ inline void CopyAsync16OrZeros(uint32_t to, const void* from,
                                          bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
               "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most kPending of this thread's groups are unfinished.
template <int kPending>
__device__ inline void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// This thread's arrival, once its CopyAsync16 have landed.
__device__ inline void ArriveAfterCopies(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                   SharedAddress(barrier))
               : "memory");
}

// Ordinary stores to shared memory before this are seen by matrix instructions
// and the copy engine after it.
__device__ inline void FenceAsyncProxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ inline uint32_t LoadShared4(uint32_t from) {
  uint32_t x;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
  return x;
}
__device__ inline uint4 LoadShared16(uint32_t from) {
  uint4 x;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(from)
               : "memory");
  return x;
}

__device__ inline void StoreShared16(uint32_t to, uint4 x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x),
               "r"(x.y), "r"(x.z), "r"(x.w)
               : "memory");
}

// --- registers: all warps of a warpgroup together ---

template <int kCount>
__device__ inline void LowerRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ inline void RaiseRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// --- matrix instructions of a warp ---

__device__ inline void LoadMatrix4(uint32_t (&r)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}

__device__ inline void LoadMatrix4Transposed(uint32_t (&r)[4], uint32_t from) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(from)
      : "memory");
}

// d += a b, 16 x 8 x 16.
template <typename T>
__device__ inline void Mma16816(float (&d)[4], const uint32_t (&a)[4],
                                uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
        "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
        "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Two floats as one register of T, `low` in its low half.
template <typename T>
__device__ inline uint32_t Pack(float low, float high) {
  uint32_t bits;
  if constexpr (std::is_same_v<T, __half>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  }
  return bits;
}

}  // namespace inlay::sm90

#endif  // INLAY_KERNELS_ATTENTION_SM90_OPS_H_
