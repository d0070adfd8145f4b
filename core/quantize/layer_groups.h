// Groups of a layer in blocks of ours, one block at a time, for layouts.
#ifndef INLAY_CORE_QUANTIZE_LAYER_GROUPS_H_
#define INLAY_CORE_QUANTIZE_LAYER_GROUPS_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "core/quantize/checkpoint_layout.h"
#include "kernels/quant/quant.h"

namespace inlay {

// A block of u4 or i8.
struct LayerBlock {
  float scale = 0.0f;
  int32_t zero = 0;                  // the code that stands for 0, from 0 up
  uint8_t codes[kMaxBlockElements];  // from 0 up
};

// Block `index` of a row.
LayerBlock ReadLayerBlock(const LayerRows& layer, int64_t row, int64_t index);

// Little-endian words of `bits`-bit fields, zeros at first.
class PackedFields {
 public:
  PackedFields(int64_t words, int bits)
      : words_(static_cast<size_t>(words)), bits_(bits) {}
  void Set(int64_t word, int field, uint32_t value) {
    words_[static_cast<size_t>(word)] |= value << bits_ * field;
  }
  std::vector<std::byte> bytes() const;

 private:
  std::vector<uint32_t> words_;
  int bits_;
};

// Scales as elements of `dtype`, f16, bf16 or f32.
std::vector<std::byte> ScaleBytes(const std::vector<float>& scales,
                                  DType dtype);

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_LAYER_GROUPS_H_
