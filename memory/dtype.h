// Storage formats (formats.def) and the conversions of the 8-bit and 16-bit
// float types.
#ifndef INLAY_MEMORY_DTYPE_H_
#define INLAY_MEMORY_DTYPE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace inlay {

enum class DType : uint8_t {
#define INLAY_FORMAT(id, value, name, block_elements, block_bytes) id = value,
#include "memory/formats.def"
#undef INLAY_FORMAT
};

struct FormatInfo {
  DType dtype;
  std::string_view name;
  int block_elements;
  int block_bytes;
};

// The entry of formats.def for `dtype`; every enumerator has one.
const FormatInfo& GetFormatInfo(DType dtype);
// Whether weights alone have it, in blocks that share scales
// (INLAY_WEIGHT_FORMAT).
bool IsBlockFormat(DType dtype);
std::optional<DType> DTypeFromName(std::string_view name);
inline std::string_view DTypeName(DType dtype) {
  return GetFormatInfo(dtype).name;
}

// Bytes of a row of `elements` elements. `elements` must be a multiple of the
// format's block.
size_t RowBytes(DType dtype, size_t elements);

inline float BF16ToF32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Round to nearest even; NaN stays NaN (quiet).
inline uint16_t F32ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// IEEE 754 binary16, subnormals included.
float F16ToF32(uint16_t bits);
// Round to nearest even; overflow becomes infinity, NaN stays NaN.
uint16_t F32ToF16(float value);

// OCP 8-bit E4M3 (OFP8 specification 1.0): bias 7, largest 448, no infinities;
// 0x7f and 0xff are NaN.
float F8E4M3ToF32(uint8_t bits);
// Round to nearest even; saturates: beyond 448, infinities included, is 448.
// NaN stays NaN.
uint8_t F32ToF8E4M3(float value);

}  // namespace inlay

#endif  // INLAY_MEMORY_DTYPE_H_
