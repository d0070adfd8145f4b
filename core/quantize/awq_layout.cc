// AWQ's layout, version gemm (core/formats/awq.cc).
#include "core/quantize/checkpoint_layout.h"
#include "core/quantize/layer_groups.h"

namespace inlay {
namespace {

constexpr int kFieldsOfWord = 8;
// The field of each of a word's outputs.
constexpr int kFieldOf[kFieldsOfWord] = {0, 4, 1, 5, 2, 6, 3, 7};

class AwqLayout final : public CheckpointLayout {
 public:
  explicit AwqLayout(const CheckpointType& type) : group_(type.group) {}

  DType ScaleType(DType) const override { return DType::kF16; }
  bool Fits(int64_t n, int64_t) const override {
    return n % kFieldsOfWord == 0;
  }
  std::vector<LayerPart> Parts(int64_t n, int64_t k, DType) const override {
    return {{".qweight", DType::kI32, {k, n / kFieldsOfWord}},
            {".qzeros", DType::kI32, {k / group_, n / kFieldsOfWord}},
            {".scales", DType::kF16, {k / group_, n}}};
  }
  std::vector<std::vector<std::byte>> Convert(const LayerRows& layer,
                                              DType) const override {
    const int64_t n = layer.n, k = layer.k;
    const int64_t elements = GetFormatInfo(layer.dtype).block_elements;
    PackedFields codes(k * n / kFieldsOfWord, 4);
    PackedFields zeros(k / group_ * n / kFieldsOfWord, 4);
    std::vector<float> scales(static_cast<size_t>(k / group_ * n));
    for (int64_t row = 0; row < n; ++row) {
      const int field = kFieldOf[row % kFieldsOfWord];
      for (int64_t first = 0; first < k; first += elements) {
        const LayerBlock block = ReadLayerBlock(layer, row, first / elements);
        const int64_t cell = first / group_ * n + row;
        scales[static_cast<size_t>(cell)] = block.scale;
        if (first % group_ == 0) {
          zeros.Set(cell / kFieldsOfWord, field,
                    static_cast<uint32_t>(block.zero));
        }
        for (int64_t i = first; i < first + elements; ++i) {
          codes.Set((i * n + row) / kFieldsOfWord, field,
                    block.codes[i - first]);
        }
      }
    }
    return {codes.bytes(), zeros.bytes(), ScaleBytes(scales, DType::kF16)};
  }
  Json Config(const LayoutUse& use) const override {
    Json config = {
        {"quant_method", "awq"}, {"version", "gemm"},  {"bits", 4},
        {"group_size", group_},  {"zero_point", true}, {"backend", "autoawq"},
        {"do_fuse", false}};
    config["modules_to_not_convert"] =
        use.kept.empty() ? Json() : Json(use.kept);
    return config;
  }

 private:
  int64_t group_;
};

}  // namespace

std::unique_ptr<CheckpointLayout> MakeAwqLayout(const CheckpointType& type) {
  return std::make_unique<AwqLayout>(type);
}

}  // namespace inlay
