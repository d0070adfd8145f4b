// The order in which routing.h chooses, as that of integers.
#ifndef INLAY_KERNELS_MOE_ROUTING_KEY_CUH_
#define INLAY_KERNELS_MOE_ROUTING_KEY_CUH_

#include <cstdint>

namespace inlay {

// Grows with the score; NaN above all. More than 1.
__device__ inline uint32_t OrderOf(float score) {
  const uint32_t bits = __float_as_uint(score + 0.0f);  // no -0
  return isnan(score) ? 0xffffffffu : bits >> 31 != 0 ? ~bits : bits | 1u << 31;
}
// Of what that gives.
__device__ inline float ScoreOf(uint32_t order) {
  return __uint_as_float(order >> 31 != 0 ? order & ~(1u << 31) : ~order);
}

// The same, and of equal scores the lower index's is larger.
__device__ inline uint64_t KeyOf(float score, int index) {
  return uint64_t{OrderOf(score)} << 32 | static_cast<uint32_t>(~index);
}
__device__ inline int IndexOf(uint64_t key) {
  return static_cast<int>(~static_cast<uint32_t>(key));
}

}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_ROUTING_KEY_CUH_
