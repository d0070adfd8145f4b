// compressed-tensors' layout of 8-bit weights and activations
// (core/formats/compressed_tensors.cc): int-quantized and float-quantized. Of
// float-quantized blocks the last rows may be fewer, as there; columns are
// whole blocks, which engines ask for, as inputs have a scale for each 128.
#include <cstring>

#include "core/quantize/checkpoint_layout.h"
#include "core/quantize/layer_groups.h"

namespace inlay {
namespace {

constexpr float kMostInputCode = 448.0f;

class CompressedTensorsLayout final : public CheckpointLayout {
 public:
  explicit CompressedTensorsLayout(const CheckpointType& type) : type_(type) {}

  // Readers give scales the weights' type; f16 is too narrow for them.
  DType ScaleType(DType stored) const override {
    return one_scale() || stored != DType::kBF16 ? DType::kF32 : DType::kBF16;
  }
  bool Fits(int64_t, int64_t) const override { return true; }
  std::vector<LayerPart> Parts(int64_t n, int64_t k,
                               DType stored) const override {
    const DType scale = ScaleType(stored);
    std::vector<LayerPart> parts = {
        {".weight", is_float() ? DType::kF8E4M3 : DType::kI8, {n, k}}};
    if (one_scale()) {
      parts.push_back({".weight_scale", scale, {1}});
    } else {
      const ScaleGrid cell = type_.Cell(n, k);
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
  Json Config(const LayoutUse& use) const override;

 private:
  bool is_float() const { return type_.codes == CheckpointCodes::kF8; }
  bool one_scale() const { return type_.group == kGroupIsTensor; }
  bool has_input_scale() const {
    return type_.inputs == CheckpointInputs::kTensor;
  }
  Json Arguments(bool dynamic, const char* strategy) const {
    Json observer;
    if (!dynamic) observer = "minmax";
    return {{"num_bits", 8},
            {"type", is_float() ? "float" : "int"},
            {"symmetric", true},
            {"strategy", strategy},
            {"dynamic", dynamic},
            {"group_size", nullptr},
            {"block_structure", nullptr},
            {"actorder", nullptr},
            {"observer", observer},
            {"observer_kwargs", Json::object()}};
  }
  Json WeightArguments() const {
    if (type_.rows == 1) {
      return Arguments(false, one_scale() ? "tensor" : "channel");
    }
    Json arguments = Arguments(false, "block");
    arguments["block_structure"] = {type_.rows, type_.group};
    return arguments;
  }
  Json InputArguments() const {
    if (has_input_scale()) return Arguments(false, "tensor");
    if (type_.inputs == CheckpointInputs::kToken) {
      return Arguments(true, "token");
    }
    Json arguments = Arguments(true, "group");
    arguments["group_size"] = type_.group;
    return arguments;
  }

  CheckpointType type_;
};

std::vector<std::vector<std::byte>> CompressedTensorsLayout::Convert(
    const LayerRows& layer, DType stored) const {
  const FormatInfo& format = GetFormatInfo(layer.dtype);
  const int64_t elements = format.block_elements;
  // The codes are the last bytes of a block as they are here.
  const int64_t header = format.block_bytes - elements;
  std::vector<std::byte> codes(static_cast<size_t>(layer.n * layer.k));
  std::vector<float> scales;
  const ScaleGrid cell = type_.Cell(layer.n, layer.k);
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

Json CompressedTensorsLayout::Config(const LayoutUse& use) const {
  return {{"quant_method", "compressed-tensors"},
          {"format", is_float() ? "float-quantized" : "int-quantized"},
          {"quantization_status", "compressed"},
          {"global_compression_ratio", nullptr},
          {"kv_cache_scheme", nullptr},
          {"ignore", use.kept},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights", WeightArguments()},
              {"input_activations", InputArguments()},
              {"output_activations", nullptr}}}}}};
}

}  // namespace

std::unique_ptr<CheckpointLayout> MakeCompressedTensorsLayout(
    const CheckpointType& type) {
  return std::make_unique<CompressedTensorsLayout>(type);
}

}  // namespace inlay
