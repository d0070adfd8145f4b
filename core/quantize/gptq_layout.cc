// GPTQ's layout (core/formats/gptq.cc; zeros are stored less 1).
#include "core/quantize/checkpoint_layout.h"
#include "core/quantize/layer_groups.h"

namespace inlay {
namespace {

class GptqLayout final : public CheckpointLayout {
 public:
  explicit GptqLayout(const CheckpointType& type)
      : type_(type), bits_(type.codes == CheckpointCodes::kI8 ? 8 : 4) {}

  DType ScaleType(DType) const override { return DType::kF16; }
  bool Fits(int64_t n, int64_t k) const override {
    return n % fields() == 0 && k % fields() == 0;
  }
  std::vector<LayerPart> Parts(int64_t n, int64_t k, DType) const override {
    const int64_t groups = k / Group(k);
    return {{".qweight", DType::kI32, {k / fields(), n}},
            {".qzeros", DType::kI32, {groups, n / fields()}},
            {".scales", DType::kF16, {groups, n}},
            {".g_idx", DType::kI32, {k}}};
  }
  std::vector<std::vector<std::byte>> Convert(const LayerRows& layer,
                                              DType) const override;
  Json Config(const LayoutUse& use) const override {
    return {{"quant_method", "gptq"},
            {"checkpoint_format", "gptq"},
            {"bits", bits_},
            {"group_size", type_.group == kGroupIsChannel ? -1 : type_.group},
            {"desc_act", false},
            {"static_groups", use.act_order},
            {"sym", type_.symmetric},
            {"true_sequential", false}};
  }

 private:
  int fields() const { return 32 / bits_; }
  int64_t Group(int64_t k) const {
    return type_.group == kGroupIsChannel ? k : type_.group;
  }

  CheckpointType type_;
  int bits_;
};

std::vector<std::vector<std::byte>> GptqLayout::Convert(const LayerRows& layer,
                                                        DType) const {
  const int64_t n = layer.n, k = layer.k;
  const int64_t group = Group(k);
  const int64_t elements = GetFormatInfo(layer.dtype).block_elements;
  PackedFields codes(k / fields() * n, bits_);
  PackedFields zeros(k / group * n / fields(), bits_);
  PackedFields groups(k, 32);
  std::vector<float> scales(static_cast<size_t>(k / group * n));
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t first = 0; first < k; first += elements) {
      const LayerBlock block = ReadLayerBlock(layer, row, first / elements);
      const int64_t cell = first / group * n + row;
      scales[static_cast<size_t>(cell)] = block.scale;
      if (first % group == 0) {
        zeros.Set(cell / fields(), static_cast<int>(row % fields()),
                  static_cast<uint32_t>(block.zero - 1));
      }
      for (int64_t i = first; i < first + elements; ++i) {
        codes.Set(i / fields() * n + row, static_cast<int>(i % fields()),
                  block.codes[i - first]);
      }
    }
  }
  for (int64_t i = 0; i < k; ++i) {
    groups.Set(i, 0, static_cast<uint32_t>(i / group));
  }
  return {codes.bytes(), zeros.bytes(), ScaleBytes(scales, DType::kF16),
          groups.bytes()};
}

}  // namespace

std::unique_ptr<CheckpointLayout> MakeGptqLayout(const CheckpointType& type) {
  return std::make_unique<GptqLayout>(type);
}

}  // namespace inlay
