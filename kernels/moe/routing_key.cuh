// The order in which routing.h chooses, as that of integers.
#ifndef INLAY_KERNELS_MOE_ROUTING_KEY_CUH_
#define INLAY_KERNELS_MOE_ROUTING_KEY_CUH_

#include <cstdint>

namespace inlay {

// Grows with the score; NaN above all; of equal scores the lower index's is
// larger. Never 0.
__device__ inline uint64_t KeyOf(float score, int index) {
  uint32_t bits = __float_as_uint(score + 0.0f);  // no -0
  bits = isnan(score) ? 0xffffffffu : bits >> 31 != 0 ? ~bits : bits | 1u << 31;
  return uint64_t{bits} << 32 | static_cast<uint32_t>(~index);
}
__device__ inline int IndexOf(uint64_t key) {
  return static_cast<int>(~static_cast<uint32_t>(key));
}

}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_ROUTING_KEY_CUH_
