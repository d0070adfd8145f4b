// Formats whose levels kernels round: how far off a level may be, as a part of
// its block's largest. 0 for all others.
#ifndef INLAY_TESTS_SUPPORT_ROUNDED_LEVELS_H_
#define INLAY_TESTS_SUPPORT_ROUNDED_LEVELS_H_

#include "memory/dtype.h"

namespace inlay::testing {

// Multiples of 1/112 and 1/120 (gemm/packed/formats-inl.h): half a step is
// .0045 and .0042, and what the tables have is .0039 and .0031.
inline double PackedLevelError(DType dtype) {
  if (dtype == DType::kNF4) return 0.0039;
  return dtype == DType::kBNB_FP4 ? 0.0032 : 0.0;
}

// Numbers of bf16 (gemm/quantised/pack.cc), the largest but 1 below .73: half
// of 2^-8 of 1/2.
inline double QuantLevelError(DType dtype) {
  return dtype == DType::kNF4 ? 0x1p-9 : 0.0;
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_ROUNDED_LEVELS_H_
