// Element access of the scalar CPU rows: any plain float type, one element at a
// time.
#ifndef INLAY_KERNELS_CPU_FLOAT_H_
#define INLAY_KERNELS_CPU_FLOAT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "memory/dtype.h"

namespace inlay {

inline bool IsPlainFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// Element `i` of a row of a plain float type. memcpy because weights in a
// mapped file may lie at any address.
inline float LoadFloat(DType dtype, const std::byte* row, int64_t i) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, row + 4 * i, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, row + 2 * i, sizeof(bits));
  return dtype == DType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
}

// Rounds to nearest even.
inline void StoreFloat(DType dtype, std::byte* row, int64_t i, float value) {
  if (dtype == DType::kF32) {
    std::memcpy(row + 4 * i, &value, sizeof(value));
    return;
  }
  const uint16_t bits =
      dtype == DType::kF16 ? F32ToF16(value) : F32ToBF16(value);
  std::memcpy(row + 2 * i, &bits, sizeof(bits));
}

}  // namespace inlay

#endif  // INLAY_KERNELS_CPU_FLOAT_H_
