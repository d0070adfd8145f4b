#include "kernels/kv_write/kv_row.h"

#include <cmath>
#include <cstring>

#include "kernels/cpu_float.h"

namespace inlay {
namespace {

constexpr int kGroupBytes =
    static_cast<int>(KvRowBytes(DType::kKvQ4, kKvQ4Group));

// The largest magnitude of the row, or NaN where that is too large.
float Most(const float* x, int count) {
  uint32_t most = 0;
  for (int i = 0; i < count; ++i) {
    most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  }
  return most < kKvNotFiniteBits ? std::bit_cast<float>(most) : kKvNan;
}

uint32_t ToInteger(float value) {
  return std::bit_cast<uint32_t>(value + kKvToInteger);
}

void EncodeBytes(DType dtype, const float* x, int head_dim, std::byte* row) {
  std::memset(row, 0, KvRowBytes(dtype, head_dim));
  const float most = Most(x, head_dim);
  if (std::isnan(most)) {
    std::memcpy(row, &kKvNan, sizeof(kKvNan));
    return;
  }
  const KvScale scale = dtype == DType::kI8 ? KvI8Scale(most) : KvF8Scale(most);
  std::memcpy(row, &scale.scale, sizeof(scale.scale));
  for (int i = 0; i < head_dim; ++i) {
    const float y = x[i] * scale.inverse;
    row[kKvScaleBytes + i] = static_cast<std::byte>(
        dtype == DType::kI8 ? ToInteger(y) & 0xff : F32ToF8E4M3(y));
  }
}

void EncodeGroup(const float* x, int count, std::byte* group) {
  const auto [least, most] = std::minmax_element(x, x + count);
  const KvQ4Scale scale = KvQ4GroupScale(*least, *most);
  std::memcpy(group, &scale.scale_bits, 2);
  std::memcpy(group + 2, &scale.least_bits, 2);
  const auto code = [&](int i) {
    const float value = x[std::min(i, count - 1)];
    return ToInteger((value - scale.least) * scale.inverse) & 15;
  };
  for (int j = 0; j < kKvQ4Group / 2; ++j) {
    group[4 + j] =
        static_cast<std::byte>(code(j) | code(j + kKvQ4Group / 2) << 4);
  }
}

void EncodeQ4(const float* x, int head_dim, std::byte* row) {
  const bool finite = !std::isnan(Most(x, head_dim));
  for (int i = 0; i < head_dim; i += kKvQ4Group, row += kGroupBytes) {
    if (finite) {
      EncodeGroup(x + i, std::min(kKvQ4Group, head_dim - i), row);
    } else {
      std::memset(row, 0, kGroupBytes);
      std::memcpy(row, &kKvNanBF16, 2);
    }
  }
}

void DecodeQ4(const std::byte* row, int head_dim, float* x) {
  for (int i = 0; i < head_dim; ++i) {
    const std::byte* group = row + i / kKvQ4Group * kGroupBytes;
    const float scale = LoadFloat(DType::kBF16, group, 0);
    const float least = LoadFloat(DType::kBF16, group, 1);
    const int at = i % kKvQ4Group;
    const auto byte = static_cast<unsigned>(group[4 + at % 16]);
    // Four bits times eight: the product is exact.
    const float code = static_cast<float>(at < 16 ? byte & 15 : byte >> 4);
    x[i] = code * scale + least;
  }
}

}  // namespace

void EncodeKvRow(DType dtype, const float* x, int head_dim, std::byte* row) {
  switch (dtype) {
    case DType::kI8:
    case DType::kF8E4M3:
      return EncodeBytes(dtype, x, head_dim, row);
    case DType::kKvQ4:
      return EncodeQ4(x, head_dim, row);
    default:
      for (int i = 0; i < head_dim; ++i) StoreFloat(dtype, row, i, x[i]);
  }
}

void DecodeKvRow(DType dtype, const std::byte* row, int head_dim, float* x) {
  if (dtype == DType::kKvQ4) return DecodeQ4(row, head_dim, x);
  if (dtype != DType::kI8 && dtype != DType::kF8E4M3) {
    for (int i = 0; i < head_dim; ++i) x[i] = LoadFloat(dtype, row, i);
    return;
  }
  const float scale = LoadFloat(DType::kF32, row, 0);
  for (int i = 0; i < head_dim; ++i) {
    const auto code = static_cast<uint8_t>(row[kKvScaleBytes + i]);
    x[i] = scale * (dtype == DType::kI8
                        ? static_cast<float>(std::bit_cast<int8_t>(code))
                        : F8E4M3ToF32(code));
  }
}

}  // namespace inlay
