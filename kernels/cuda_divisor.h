// Division by a number that a launch knows, for kernels that divide often: a
// GPU's own division takes some 30 instructions. Knows no ops. Source: Granlund
// and Montgomery, Division by Invariant Integers using Multiplication (PLDI
// 1994), figure 4.1.
#ifndef INLAY_KERNELS_CUDA_DIVISOR_H_
#define INLAY_KERNELS_CUDA_DIVISOR_H_

#include <cstdint>

#include "kernels/sample/host_device.h"

namespace inlay {

// Of numbers from 0 to 2^31 - 1.
class LaunchDivisor {
 public:
  LaunchDivisor() = default;  // by 1
  // `divisor` is at least 1.
  explicit LaunchDivisor(int divisor) : divisor_(divisor) {
    const auto by = static_cast<uint64_t>(divisor);
    while ((uint64_t{1} << shift_) < by) ++shift_;
    factor_ =
        static_cast<uint32_t>((((uint64_t{1} << shift_) - by) << 32) / by + 1);
  }

  INLAY_HOST_DEVICE int divisor() const { return divisor_; }
  INLAY_HOST_DEVICE int Quotient(int x) const {
    const auto n = static_cast<uint32_t>(x);
    const auto high = static_cast<uint32_t>(uint64_t{n} * factor_ >> 32);
    return static_cast<int>((high + n) >> shift_);
  }
  INLAY_HOST_DEVICE int Remainder(int x, int quotient) const {
    return x - quotient * divisor_;
  }

 private:
  int divisor_ = 1;
  uint32_t factor_ = 1;
  int shift_ = 0;
};

}  // namespace inlay

#endif  // INLAY_KERNELS_CUDA_DIVISOR_H_
