#include "core/quantize/gptq_layout.h"

#include <cmath>
#include <cstring>

#include "kernels/quant/bits.h"
#include "kernels/quant/quant.h"

namespace inlay {
namespace {

constexpr int kHeaderBytes = 8;  // scale and min, float32

struct Group {
  float scale = 0.0f;
  uint32_t zero = 1;
  uint8_t codes[kMaxBlockElements];  // from 0 up
};

Group ReadGroup(const std::byte* block, int bits, int elements) {
  Group group;
  float min = 0.0f;
  std::memcpy(&group.scale, block, sizeof(float));
  std::memcpy(&min, block + sizeof(float), sizeof(float));
  const int middle = bits == 8 ? 128 : 0;
  if (group.scale != 0.0f) {
    group.zero =
        static_cast<uint32_t>(std::lround(-min / group.scale) + middle);
  }
  const auto* codes = reinterpret_cast<const uint8_t*>(block + kHeaderBytes);
  if (bits == 4 && elements == 32) {
    UnpackBits<4, 16, 32>(codes, group.codes);
  } else if (bits == 4) {
    UnpackBits<4, 16, 128>(codes, group.codes);
  } else {
    for (int i = 0; i < elements; ++i) group.codes[i] = codes[i] ^ 0x80;
  }
  return group;
}

}  // namespace

int GptqBits(DType dtype) {
  return dtype == DType::kI8_G128 || dtype == DType::kI8_G32 ? 8 : 4;
}

bool FitsGptqLayout(DType dtype, int64_t n, int64_t k) {
  return k % GetFormatInfo(dtype).block_elements == 0 &&
         n % (32 / GptqBits(dtype)) == 0;
}

GptqTensors ToGptqTensors(absl::Span<const std::byte> rows, DType dtype,
                          int64_t n, int64_t k) {
  const FormatInfo& format = GetFormatInfo(dtype);
  const int bits = GptqBits(dtype);
  const int fields = 32 / bits;
  const int64_t groups = k / format.block_elements;
  GptqTensors out;
  out.codes.resize(static_cast<size_t>(k / fields * n));
  out.zeros.resize(static_cast<size_t>(groups * n / fields));
  out.scales.resize(static_cast<size_t>(groups * n));
  out.groups.resize(static_cast<size_t>(k));
  for (int64_t i = 0; i < k; ++i) {
    out.groups[static_cast<size_t>(i)] =
        static_cast<int32_t>(i / format.block_elements);
  }
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t g = 0; g < groups; ++g) {
      const Group group =
          ReadGroup(rows.data() + (row * groups + g) * format.block_bytes, bits,
                    format.block_elements);
      out.scales[static_cast<size_t>(g * n + row)] = F32ToF16(group.scale);
      out.zeros[static_cast<size_t>((g * n + row) / fields)] |=
          (group.zero - 1) << bits * (row % fields);
      for (int i = 0; i < format.block_elements; ++i) {
        const int64_t input = g * format.block_elements + i;
        out.codes[static_cast<size_t>(input / fields * n + row)] |=
            uint32_t{group.codes[i]} << bits * (input % fields);
      }
    }
  }
  return out;
}

}  // namespace inlay
