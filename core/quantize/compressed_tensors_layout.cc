// compressed-tensors' layouts (core/formats/compressed_tensors.cc): int- and
// float-quantized of 8-bit weights and activations, pack-quantized of int4
// weights. Of blocks the last rows may be fewer, as there; columns are whole
// blocks, which engines ask for, as inputs have a scale for each 128.
#include <cstring>

#include "core/quantize/checkpoint_layout.h"
#include "core/quantize/layer_groups.h"

namespace inlay {
namespace {

constexpr float kMostInputCode = 448.0f;

// Settings, which are alike whatever the tensors.
class CompressedTensorsLayout : public CheckpointLayout {
 public:
  bool Fits(int64_t, int64_t) const override { return true; }
  Json Config(const LayoutUse& use) const final;

 protected:
  explicit CompressedTensorsLayout(const CheckpointType& type) : type_(type) {}
  const CheckpointType& type() const { return type_; }
  bool is_float() const { return type_.codes == CheckpointCodes::kF8; }
  bool is_packed() const { return type_.codes == CheckpointCodes::kU4; }
  bool one_scale() const { return type_.group == kGroupIsTensor; }

 private:
  const char* Format() const {
    if (is_packed()) return "pack-quantized";
    return is_float() ? "float-quantized" : "int-quantized";
  }
  Json Arguments(bool dynamic, const char* strategy) const {
    Json observer;
    if (!dynamic) observer = "minmax";
    return {{"num_bits", is_packed() ? 4 : 8},
            {"type", is_float() ? "float" : "int"},
            {"symmetric", type_.symmetric},
            {"strategy", strategy},
            {"dynamic", dynamic},
            {"group_size", nullptr},
            {"block_structure", nullptr},
            {"actorder", nullptr},
            {"observer", observer},
            {"observer_kwargs", Json::object()}};
  }
  Json GroupArguments(bool dynamic) const {
    Json arguments = Arguments(dynamic, "group");
    arguments["group_size"] = type_.group;
    return arguments;
  }
  Json WeightArguments() const {
    if (one_scale()) return Arguments(false, "tensor");
    if (type_.group == kGroupIsChannel) return Arguments(false, "channel");
    if (type_.rows == 1) return GroupArguments(false);
    Json arguments = Arguments(false, "block");
    arguments["block_structure"] = {type_.rows, type_.group};
    return arguments;
  }
  Json InputArguments() const {
    switch (type_.inputs) {
      case CheckpointInputs::kTensor:
        return Arguments(false, "tensor");
      case CheckpointInputs::kToken:
        return Arguments(true, "token");
      case CheckpointInputs::kGroup:
        return GroupArguments(true);
      default:
        return {};
    }
  }

  CheckpointType type_;
};

Json CompressedTensorsLayout::Config(const LayoutUse& use) const {
  Json weights = WeightArguments();
  // Codes chosen in another order; their columns keep theirs. Older readers
  // take the word for groups alone.
  if (use.act_order && weights["strategy"] == "group") {
    weights["actorder"] = "weight";
  }
  return {{"quant_method", "compressed-tensors"},
          {"format", Format()},
          {"quantization_status", "compressed"},
          {"global_compression_ratio", nullptr},
          {"kv_cache_scheme", nullptr},
          {"ignore", use.kept},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights", weights},
              {"input_activations", InputArguments()},
              {"output_activations", nullptr}}}}}};
}

// A byte a code.
class ByteLayout final : public CompressedTensorsLayout {
 public:
  explicit ByteLayout(const CheckpointType& type)
      : CompressedTensorsLayout(type) {}

  // Readers give scales the weights' type; f16 is too narrow for them.
  DType ScaleType(DType stored) const override {
    return one_scale() || stored != DType::kBF16 ? DType::kF32 : DType::kBF16;
  }
  std::vector<LayerPart> Parts(int64_t n, int64_t k,
                               DType stored) const override {
    const DType scale = ScaleType(stored);
    std::vector<LayerPart> parts = {
        {".weight", is_float() ? DType::kF8E4M3 : DType::kI8, {n, k}}};
    if (one_scale()) {
      parts.push_back({".weight_scale", scale, {1}});
    } else {
      const ScaleGrid cell = type().Cell(n, k);
      parts.push_back({".weight_scale",
                       scale,
                       {(n - 1) / cell.rows + 1, k / cell.columns}});
    }
    if (has_input_scale()) {
      parts.push_back({".input_scale", DType::kF32, {1}});
    }
    return parts;
  }
  std::vector<std::vector<std::byte>> Convert(const LayerRows& layer,
                                              DType stored) const override;

 private:
  bool has_input_scale() const {
    return type().inputs == CheckpointInputs::kTensor;
  }
};

std::vector<std::vector<std::byte>> ByteLayout::Convert(const LayerRows& layer,
                                                        DType stored) const {
  const FormatInfo& format = GetFormatInfo(layer.dtype);
  const int64_t elements = format.block_elements;
  // The codes are the last bytes of a block as they are here.
  const int64_t header = format.block_bytes - elements;
  std::vector<std::byte> codes(static_cast<size_t>(layer.n * layer.k));
  std::vector<float> scales;
  const ScaleGrid cell = type().Cell(layer.n, layer.k);
  const std::byte* from = layer.rows.data();
  for (int64_t at = 0; at < layer.n * layer.k; at += elements) {
    if (at / layer.k % cell.rows == 0 && at % layer.k % cell.columns == 0) {
      std::memcpy(&scales.emplace_back(), from, sizeof(float));
    }
    std::memcpy(codes.data() + at, from + header,
                static_cast<size_t>(elements));
    from += format.block_bytes;
  }
  std::vector<std::vector<std::byte>> parts = {
      std::move(codes), ScaleBytes(scales, ScaleType(stored))};
  if (has_input_scale()) {
    parts.push_back(
        ScaleBytes({layer.largest_input / kMostInputCode}, DType::kF32));
  }
  return parts;
}

// int4 in words along a row, as zero points along a column.
class PackedLayout final : public CompressedTensorsLayout {
 public:
  explicit PackedLayout(const CheckpointType& type)
      : CompressedTensorsLayout(type) {}

  // The weights' type, which readers give them.
  DType ScaleType(DType stored) const override {
    return stored == DType::kF16 || stored == DType::kBF16 ? stored
                                                           : DType::kF32;
  }
  std::vector<LayerPart> Parts(int64_t n, int64_t k,
                               DType stored) const override {
    const int64_t groups = k / type().Cell(n, k).columns;
    std::vector<LayerPart> parts = {
        {".weight_packed", DType::kI32, {n, k / kFields}},
        {".weight_scale", ScaleType(stored), {n, groups}},
        {".weight_shape", DType::kI64, {2}}};
    if (!type().symmetric) {
      parts.push_back(
          {".weight_zero_point", DType::kI32, {ZeroWords(n), groups}});
    }
    return parts;
  }
  std::vector<std::vector<std::byte>> Convert(const LayerRows& layer,
                                              DType stored) const override;

 private:
  static constexpr int64_t kFields = 8;
  static int64_t ZeroWords(int64_t n) { return (n - 1) / kFields + 1; }
};

std::vector<std::vector<std::byte>> PackedLayout::Convert(
    const LayerRows& layer, DType stored) const {
  const int64_t n = layer.n, k = layer.k;
  const int64_t group = type().Cell(n, k).columns, groups = k / group;
  const int64_t elements = GetFormatInfo(layer.dtype).block_elements;
  PackedFields codes(n * k / kFields, 4);
  PackedFields zeros(ZeroWords(n) * groups, 4);
  std::vector<float> scales;
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t first = 0; first < k; first += elements) {
      const LayerBlock block = ReadLayerBlock(layer, row, first / elements);
      if (first % group == 0) {
        scales.push_back(block.scale);
        zeros.Set(row / kFields * groups + first / group,
                  static_cast<int>(row % kFields),
                  static_cast<uint32_t>(block.zero));
      }
      for (int64_t i = first; i < first + elements; ++i) {
        codes.Set((row * k + i) / kFields, static_cast<int>(i % kFields),
                  block.codes[i - first]);
      }
    }
  }
  std::vector<std::byte> shape(2 * sizeof(int64_t));
  std::memcpy(shape.data(), &n, sizeof(n));
  std::memcpy(shape.data() + sizeof(n), &k, sizeof(k));
  std::vector<std::vector<std::byte>> parts = {
      codes.bytes(), ScaleBytes(scales, ScaleType(stored)), std::move(shape)};
  if (!type().symmetric) parts.push_back(zeros.bytes());
  return parts;
}

}  // namespace

std::unique_ptr<CheckpointLayout> MakeCompressedTensorsLayout(
    const CheckpointType& type) {
  if (type.codes == CheckpointCodes::kU4) {
    return std::make_unique<PackedLayout>(type);
  }
  return std::make_unique<ByteLayout>(type);
}

}  // namespace inlay
