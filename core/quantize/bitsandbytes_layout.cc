// bitsandbytes' layout of four bits (core/formats/bitsandbytes.cc): blocks of
// 64 with scales in float32, which are not coded themselves. Its blocks run
// over the flat weight; rows are whole ones here.
#include <cstring>

#include "core/quantize/checkpoint_layout.h"
#include "core/quantize/layer_groups.h"
#include "kernels/quant/bnb_fp4/bnb_fp4.h"
#include "kernels/quant/nf4/nf4.h"
#include "memory/formatted_string.h"

namespace inlay {
namespace {

const char* TorchName(DType stored) {
  if (stored == DType::kF16) return "float16";
  return stored == DType::kBF16 ? "bfloat16" : "float32";
}

class BitsAndBytesLayout final : public CheckpointLayout {
 public:
  explicit BitsAndBytesLayout(const CheckpointType& type)
      : is_nf4_(type.codes == CheckpointCodes::kNf4) {}

  DType ScaleType(DType) const override { return DType::kF32; }
  bool Fits(int64_t, int64_t) const override { return true; }
  std::vector<LayerPart> Parts(int64_t n, int64_t k,
                               DType stored) const override {
    const auto state = static_cast<int64_t>(State(n, k, stored).size());
    return {{".weight", DType::kU8, {n * k / 2, 1}},
            {".weight.absmax", DType::kF32, {n * k / kLevelBlockElements}},
            {".weight.quant_map", DType::kF32, {16}},
            {FormattedString(".weight.quant_state.bitsandbytes__%s", Name()),
             DType::kU8,
             {state}}};
  }
  std::vector<std::vector<std::byte>> Convert(const LayerRows& layer,
                                              DType stored) const override;
  Json Config(const LayoutUse& use) const override {
    return {{"quant_method", "bitsandbytes"},
            {"_load_in_4bit", true},
            {"_load_in_8bit", false},
            {"load_in_4bit", true},
            {"load_in_8bit", false},
            {"bnb_4bit_compute_dtype", TorchName(use.stored)},
            {"bnb_4bit_quant_storage", "uint8"},
            {"bnb_4bit_quant_type", Name()},
            {"bnb_4bit_use_double_quant", false},
            {"llm_int8_enable_fp32_cpu_offload", false},
            {"llm_int8_has_fp16_weight", false},
            {"llm_int8_skip_modules", use.kept},
            {"llm_int8_threshold", 6.0}};
  }

 private:
  const char* Name() const { return is_nf4_ ? "nf4" : "fp4"; }
  // JSON as Python writes it, byte for byte.
  std::string State(int64_t n, int64_t k, DType stored) const {
    return FormattedString(
        "{\"quant_type\": \"%s\", \"blocksize\": %d, \"dtype\": \"%s\", "
        "\"shape\": [%d, %d]}",
        Name(), kLevelBlockElements, TorchName(stored), n, k);
  }

  bool is_nf4_;
};

std::vector<std::vector<std::byte>> BitsAndBytesLayout::Convert(
    const LayerRows& layer, DType stored) const {
  const int64_t blocks = layer.n * layer.k / kLevelBlockElements;
  std::vector<std::byte> pairs(static_cast<size_t>(layer.n * layer.k / 2));
  std::vector<float> scales;
  std::byte* to = pairs.data();
  for (int64_t b = 0; b < blocks; ++b) {
    const auto block = LoadBlock<LevelBlock>(layer.rows.data(), b);
    scales.push_back(block.scale);
    uint8_t codes[kLevelBlockElements];
    UnpackBits<4, 16, kLevelBlockElements>(block.codes, codes);
    for (int i = 0; i < kLevelBlockElements; i += 2) {
      // The first in the upper half.
      *to++ = static_cast<std::byte>(codes[i] << 4 | codes[i + 1]);
    }
  }
  const BlockLevels& levels = is_nf4_ ? kNf4Levels : kBnbFp4Levels;
  std::vector<float> map(std::begin(levels), std::end(levels));
  for (float& level : map) level += 0.0f;  // none is -0 there
  const std::string state = State(layer.n, layer.k, stored);
  const auto* text = reinterpret_cast<const std::byte*>(state.data());
  return {std::move(pairs),
          ScaleBytes(scales, DType::kF32),
          ScaleBytes(map, DType::kF32),
          {text, text + state.size()}};
}

}  // namespace

std::unique_ptr<CheckpointLayout> MakeBitsAndBytesLayout(
    const CheckpointType& type) {
  return std::make_unique<BitsAndBytesLayout>(type);
}

}  // namespace inlay
