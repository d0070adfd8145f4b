// Which Highway targets the SIMD rows are compiled for; included before any
// Highway header. Dropped: SSSE3 beside SSE4, and the AVX-512 subset whose
// additions (integer dot products) float kernels do not use; each target costs
// build time and bytes.
#ifndef INLAY_KERNELS_SIMD_TARGETS_H_
#define INLAY_KERNELS_SIMD_TARGETS_H_

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)

#endif  // INLAY_KERNELS_SIMD_TARGETS_H_
