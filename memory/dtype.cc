#include "memory/dtype.h"

#include <array>

namespace inlay {
namespace {

constexpr std::array kFormats = {
#define INLAY_FORMAT(id, value, name, block_elements, block_bytes) \
  FormatInfo{DType::id, name, block_elements, block_bytes},
#include "memory/formats.def"
#undef INLAY_FORMAT
};

constexpr bool ValuesAreDense() {
  for (size_t i = 0; i < kFormats.size(); ++i) {
    if (static_cast<size_t>(kFormats[i].dtype) != i) return false;
  }
  return true;
}
static_assert(ValuesAreDense(), "formats.def: values must count up from 0");

}  // namespace

const FormatInfo& GetFormatInfo(DType dtype) {
  return kFormats[static_cast<size_t>(dtype)];
}

bool IsBlockFormat(DType dtype) {
  switch (dtype) {
#define INLAY_FORMAT(id, value, name, block_elements, block_bytes)
#define INLAY_WEIGHT_FORMAT(id, value, name, block_elements, block_bytes) \
  case DType::k##id:
#include "memory/formats.def"
#undef INLAY_FORMAT
    return true;
    default:
      return false;
  }
}

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const FormatInfo& format : kFormats) {
    if (format.name == name) return format.dtype;
  }
  return std::nullopt;
}

size_t RowBytes(DType dtype, size_t elements) {
  const FormatInfo& format = GetFormatInfo(dtype);
  return elements / static_cast<size_t>(format.block_elements) *
         static_cast<size_t>(format.block_bytes);
}

float F16ToF32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f)
    return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) |
                                (mantissa << 13));
  // Subnormal: mantissa * 2^-24, exact in float32.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  // 65520 is the midpoint above the largest finite half: it and all above round
  // to infinity.
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 aligns the float's last bit with 2^-24, the
    // half's subnormal step, and rounds to even.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(
        sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

float F8E4M3ToF32(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80u) << 24;
  const uint32_t magnitude = bits & 0x7fu;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude >= 8)
    return std::bit_cast<float>(sign | ((magnitude << 20) + 0x3c000000u));
  // Subnormal: magnitude * 2^-9, exact in float32.
  const float subnormal = static_cast<float>(magnitude) * 0x1p-9f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(subnormal));
}

uint8_t F32ToF8E4M3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  if (magnitude < 0x3c800000u) {
    // Below 2^-6: adding 2^14 aligns the float's last bit with 2^-9, the
    // subnormal step, and rounds to even.
    const float aligned = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<uint8_t>(
        sign | (std::bit_cast<uint32_t>(aligned) - 0x46800000u));
  }
  const uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  const uint32_t code = (rounded - 0x3c000000u) >> 20;
  return static_cast<uint8_t>(sign | (code < 0x7eu ? code : 0x7eu));
}

}  // namespace inlay
