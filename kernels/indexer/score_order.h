// The order in which keys are selected, the same on every device: by score,
// then by position. Knows no tensors.
#ifndef INLAY_KERNELS_INDEXER_SCORE_ORDER_H_
#define INLAY_KERNELS_INDEXER_SCORE_ORDER_H_

#include <cstdint>

#include "kernels/sample/host_device.h"

namespace inlay {

// Of a float's bits: unsigned, ascending with the number; the two zeros are
// one, every NaN is more than infinity.
INLAY_HOST_DEVICE inline uint32_t ScoreOrder(uint32_t bits) {
  constexpr uint32_t kSign = 0x80000000u;
  constexpr uint32_t kInfinity = 0x7f800000u;
  if ((bits & ~kSign) > kInfinity) return ~0u;
  if (bits == kSign) bits = 0;
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

}  // namespace inlay

#endif  // INLAY_KERNELS_INDEXER_SCORE_ORDER_H_
