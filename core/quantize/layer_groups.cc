#include "core/quantize/layer_groups.h"

#include <cmath>

#include "kernels/cpu_float.h"
#include "kernels/quant/bits.h"

namespace inlay {
namespace {

constexpr int kHeaderBytes = 8;  // scale and min, float32

}  // namespace

LayerBlock ReadLayerBlock(const LayerRows& layer, int64_t row, int64_t index) {
  const FormatInfo& format = GetFormatInfo(layer.dtype);
  const int64_t blocks = layer.k / format.block_elements;
  const std::byte* from =
      layer.rows.data() + (row * blocks + index) * format.block_bytes;
  const bool bytes =
      layer.dtype == DType::kI8_G128 || layer.dtype == DType::kI8_G32;
  const int middle = bytes ? 128 : 0;
  LayerBlock block;
  float min = 0.0f;
  std::memcpy(&block.scale, from, sizeof(float));
  std::memcpy(&min, from + sizeof(float), sizeof(float));
  block.zero = bytes ? middle : 1;
  if (block.scale != 0.0f) {
    block.zero = static_cast<int32_t>(std::lround(-min / block.scale)) + middle;
  }
  const auto* codes = reinterpret_cast<const uint8_t*>(from + kHeaderBytes);
  if (bytes) {
    for (int i = 0; i < format.block_elements; ++i) {
      block.codes[i] = codes[i] ^ 0x80;
    }
  } else if (format.block_elements == 32) {
    UnpackBits<4, 16, 32>(codes, block.codes);
  } else {
    UnpackBits<4, 16, 128>(codes, block.codes);
  }
  return block;
}

std::vector<std::byte> PackedFields::bytes() const {
  const auto* data = reinterpret_cast<const std::byte*>(words_.data());
  return {data, data + words_.size() * sizeof(uint32_t)};
}

std::vector<std::byte> ScaleBytes(const std::vector<float>& scales,
                                  DType dtype) {
  std::vector<std::byte> bytes(RowBytes(dtype, scales.size()));
  for (size_t i = 0; i < scales.size(); ++i) {
    StoreFloat(dtype, bytes.data(), static_cast<int64_t>(i), scales[i]);
  }
  return bytes;
}

}  // namespace inlay
