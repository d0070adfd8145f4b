// Which Highway targets the SIMD rows are compiled for; included before any
// Highway header. Dropped: SSSE3 beside SSE4, and the AVX-512 subset whose
// additions (integer dot products) float kernels do not use; each target costs
// build time and bytes. Nor vectors whose length is not known to the compiler:
// on Arm NEON stands for them. Under sanitizers a target costs minutes: AVX2
// and the baseline stand for all.
#ifndef INLAY_KERNELS_SIMD_TARGETS_H_
#define INLAY_KERNELS_SIMD_TARGETS_H_

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define INLAY_SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INLAY_SANITIZED 1
#endif

#define INLAY_SCALABLE_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#ifdef INLAY_SANITIZED
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SSE4 | HWY_AVX3 | INLAY_SCALABLE_TARGETS)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | INLAY_SCALABLE_TARGETS)
#endif

#endif  // INLAY_KERNELS_SIMD_TARGETS_H_
