// BitNet's checkpoints (arXiv:2402.17764): weights of -1, 0 and 1 by one scale
// a layer. Of a layer with n outputs and k inputs, where they are stored as
// such ("offline"):
//   weight        u8 [n / 4, k]   two bits each, plus 1: bits 2 i of row r are
//                                 of output i * n / 4 + r
//   weight_scale  [1]             what they are multiplied by, or, of class
//                                 "bitlinear", divided by
// or, where a model of class "autobitlinear" was saved again, weight [n, k] in
// floats that are -1, 0 and 1; or, "online", weight [n, k] in floats, which
// stand for round(weight / s) cut off beyond +-1, times s, the mean of
// magnitudes.
// Inputs are meant to be rounded to int8 by the token: they are kept, as are
// those of other checkpoints whose rounding no kernel has.
// Source: transformers 5.24, integrations/bitnet.py, quantizer_bitnet.py.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/quantized_layer.h"
#include "core/formats/quantized_methods.h"
#include "core/formats/quantized_settings.h"
#include "core/formats/stored_tensor.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kTernaryFields = 4;  // codes in a byte
constexpr int32_t kTernaryZero = 1;    // the code of 0

struct BitnetSettings {
  bool is_online = false;
  bool divides = false;  // by weight_scale
};

absl::StatusOr<BitnetSettings> ReadBitnetSettings(const Json& config) {
  INLAY_ASSIGN_OR_RETURN(const std::string kind,
                         JsonString(config, "linear_class", "bitlinear"));
  INLAY_ASSIGN_OR_RETURN(const std::string mode,
                         JsonString(config, "quantization_mode", "offline"));
  INLAY_ASSIGN_OR_RETURN(const bool normalises,
                         JsonBool(config, "use_rms_norm", false));
  if (kind != "bitlinear" && kind != "autobitlinear") {
    return UnsupportedSetting("linear_class", kind, "bitlinear, autobitlinear");
  }
  if (mode != "offline" && mode != "online") {
    return UnsupportedSetting("quantization_mode", mode, "offline, online");
  }
  if (normalises) return UnsupportedSetting("use_rms_norm", "true", "false");
  INLAY_RETURN_IF_ERROR(CheckNames(config, "modules_to_not_convert"));
  // Of the other class weights are packed whatever the mode says.
  return BitnetSettings{mode == "online" && kind == "autobitlinear",
                        kind == "bitlinear"};
}

class PackedBitnetLayer final : public QuantizedLayer {
 public:
  PackedBitnetLayer(const std::string& layer, int64_t n, Grouping grouping,
                    const WeightInfo* codes, float scale,
                    std::shared_ptr<const WeightSource> stored)
      : QuantizedLayer(layer, CodeKind::kU4, n, std::move(grouping)),
        codes_(codes),
        scale_(scale),
        stored_(std::move(stored)) {}

 private:
  absl::Status Load(Band& band) const override {
    const int64_t k = grouping().k;
    const int64_t packed_rows = codes_->shape[0];
    for (int64_t row = 0; row < band.rows; ++row) {
      const int64_t output = band.first + row;
      uint8_t* const to = band.codes.data() + row * k;
      INLAY_RETURN_IF_ERROR(ReadStrip(*stored_, *codes_, output % packed_rows,
                                      1, 0, k,
                                      reinterpret_cast<std::byte*>(to)));
      const auto shift = static_cast<int>(2 * (output / packed_rows));
      for (int64_t i = 0; i < k; ++i) {
        to[i] = static_cast<uint8_t>(to[i] >> shift & 3);
      }
    }
    std::fill(band.scales.begin(), band.scales.end(), scale_);
    std::fill(band.zeros.begin(), band.zeros.end(), kTernaryZero);
    return absl::OkStatus();
  }

  const WeightInfo* codes_;
  float scale_;
  std::shared_ptr<const WeightSource> stored_;
};

// Of floats: ternary ones, which `scale` multiplies, or, without one, any. Then
// the scale is of all the weights: found when the first of them is read.
class FloatBitnetLayer final : public QuantizedLayer {
 public:
  FloatBitnetLayer(const std::string& layer, Grouping grouping,
                   const WeightInfo* weight, std::optional<float> scale,
                   std::shared_ptr<const WeightSource> stored)
      : QuantizedLayer(layer, CodeKind::kU4, weight->shape[0],
                       std::move(grouping)),
        weight_(weight),
        is_ternary_(scale.has_value()),
        stored_(std::move(stored)),
        scale_(scale.value_or(1.0f)) {}

 private:
  absl::Status Load(Band& band) const override {
    if (!is_ternary_) std::call_once(once_, [&] { status_ = FindScale(); });
    INLAY_RETURN_IF_ERROR(status_);
    const int64_t k = grouping().k;
    std::vector<float> row(static_cast<size_t>(k));
    for (int64_t r = 0; r < band.rows; ++r) {
      INLAY_RETURN_IF_ERROR(
          ReadFloats(*stored_, *weight_, band.first + r, 1, 0, k, row.data()));
      uint8_t* const to = band.codes.data() + r * k;
      for (int64_t i = 0; i < k; ++i) {
        const float value = row[static_cast<size_t>(i)];
        // To even where it is in the middle, as torch rounds.
        const float code = std::nearbyint(value * inverse_);
        if (is_ternary_ && !(code == value && std::fabs(code) <= 1.0f)) {
          return absl::InvalidArgumentError(FormattedString(
              "tensor %s holds %g beside a weight_scale; supported are -1, 0 "
              "and 1",
              weight_->name, value));
        }
        to[i] = static_cast<uint8_t>(code >= 1.0f    ? 2
                                     : code <= -1.0f ? 0
                                                     : kTernaryZero);
      }
    }
    std::fill(band.scales.begin(), band.scales.end(), scale_);
    std::fill(band.zeros.begin(), band.zeros.end(), kTernaryZero);
    return absl::OkStatus();
  }

  absl::Status FindScale() const {
    const int64_t k = grouping().k;
    std::vector<float> row(static_cast<size_t>(k));
    double sum = 0.0;
    for (int64_t r = 0; r < n(); ++r) {
      INLAY_RETURN_IF_ERROR(
          ReadFloats(*stored_, *weight_, r, 1, 0, k, row.data()));
      for (const float value : row) sum += std::fabs(double{value});
    }
    if (!std::isfinite(sum)) {
      return absl::InvalidArgumentError(FormattedString(
          "tensor %s holds a number that is not finite", weight_->name));
    }
    const double count = static_cast<double>(n()) * static_cast<double>(k);
    inverse_ = 1.0f / std::max(static_cast<float>(sum / count), 1e-5f);
    scale_ = 1.0f / inverse_;
    return absl::OkStatus();
  }

  const WeightInfo* weight_;
  bool is_ternary_;
  std::shared_ptr<const WeightSource> stored_;
  mutable std::once_flag once_;
  mutable absl::Status status_;
  mutable float inverse_ = 1.0f;
  mutable float scale_;
};

// What a layer's codes are multiplied by, finite.
absl::StatusOr<float> ReadBitnetScale(const WeightSource& stored, bool divides,
                                      const std::string& layer) {
  INLAY_ASSIGN_OR_RETURN(
      const WeightInfo* scales,
      StoredTensor(stored, layer + ".weight_scale", kScaleDTypes));
  INLAY_RETURN_IF_ERROR(CheckShape(*scales, {1}));
  float scale = 0.0f;
  WeightInfo one = *scales;
  one.shape = {1, 1};
  INLAY_RETURN_IF_ERROR(ReadFloats(stored, one, 0, 1, 0, 1, &scale));
  if (divides) scale = 1.0f / scale;
  if (std::isfinite(scale)) return scale;
  return absl::InvalidArgumentError(FormattedString(
      "tensor %s gives a scale that is not finite", scales->name));
}

absl::StatusOr<std::unique_ptr<const QuantizedLayer>> FindFloatBitnetLayer(
    const std::shared_ptr<const WeightSource>& stored,
    std::optional<float> scale, const std::string& layer) {
  INLAY_ASSIGN_OR_RETURN(
      const WeightInfo* weight,
      StoredMatrix(*stored, layer + ".weight", kScaleDTypes));
  const int64_t k = weight->shape[1];
  INLAY_RETURN_IF_ERROR(CheckLayerSize(layer, weight->shape[0], k));
  INLAY_ASSIGN_OR_RETURN(Grouping grouping, ContiguousGroups(layer, k, k));
  return std::make_unique<FloatBitnetLayer>(layer, std::move(grouping), weight,
                                            scale, stored);
}

absl::StatusOr<std::unique_ptr<const QuantizedLayer>> FindOfflineLayer(
    const std::shared_ptr<const WeightSource>& stored, bool divides,
    const std::string& layer) {
  INLAY_ASSIGN_OR_RETURN(const float scale,
                         ReadBitnetScale(*stored, divides, layer));
  const std::string name = layer + ".weight";
  const WeightInfo* found = stored->Find(name);
  // Class "bitlinear" has packed weights alone.
  if (!divides && found != nullptr && found->dtype != DType::kU8) {
    return FindFloatBitnetLayer(stored, scale, layer);
  }
  INLAY_ASSIGN_OR_RETURN(const WeightInfo* codes,
                         StoredMatrix(*stored, name, {DType::kU8}));
  const int64_t n = FieldsIn(codes->shape[0], kTernaryFields);
  const int64_t k = codes->shape[1];
  INLAY_RETURN_IF_ERROR(CheckLayerSize(layer, n, k));
  INLAY_ASSIGN_OR_RETURN(Grouping grouping, ContiguousGroups(layer, k, k));
  return std::make_unique<PackedBitnetLayer>(layer, n, std::move(grouping),
                                             codes, scale, stored);
}

// Whether transformers converts the layers that are found here and no others:
// an own list, an empty one too, stands in place of the head that it keeps by
// itself, and experts are parameters there, which it keeps.
absl::Status CheckOnlineLayers(const Json& config, const WeightSource& stored) {
  const Json* kept = JsonFind(config, "modules_to_not_convert");
  const auto is_head = [](const Json& name) { return name == "lm_head"; };
  if (kept != nullptr &&
      (kept->empty() || !std::all_of(kept->begin(), kept->end(), is_head))) {
    return UnsupportedSetting("modules_to_not_convert", ShownJson(*kept),
                              "null, or [\"lm_head\"], where "
                              "quantization_mode is online");
  }
  for (const WeightInfo& tensor : stored.weights()) {
    if (tensor.name.find(".experts.") == std::string::npos) continue;
    return UnsupportedSetting(
        "quantization_mode", "online",
        FormattedString("offline where there are experts (tensor %s)",
                        tensor.name));
  }
  return absl::OkStatus();
}

absl::StatusOr<QuantizedLayers> FindOnlineLayers(
    const Json& config, const std::shared_ptr<const WeightSource>& stored) {
  INLAY_RETURN_IF_ERROR(CheckOnlineLayers(config, *stored));
  QuantizedLayers found;
  for (const std::string& layer : LayersWith(*stored, ".weight")) {
    const WeightInfo* weight = stored->Find(layer + ".weight");
    const bool is_layer =
        weight->shape.size() == 2 && layer.find("layers.") != std::string::npos;
    if (!is_layer) continue;
    INLAY_ASSIGN_OR_RETURN(auto made,
                           FindFloatBitnetLayer(stored, std::nullopt, layer));
    found.layers.push_back(std::move(made));
    found.consumed.push_back(weight->name);
  }
  return found;
}

}  // namespace

absl::StatusOr<QuantizedLayers> FindBitnetLayers(
    const Json& config, const std::shared_ptr<const WeightSource>& stored,
    std::string_view) {
  INLAY_ASSIGN_OR_RETURN(const BitnetSettings settings,
                         ReadBitnetSettings(config));
  if (settings.is_online) return FindOnlineLayers(config, stored);
  QuantizedLayers found;
  for (const std::string& layer : LayersWith(*stored, ".weight_scale")) {
    INLAY_ASSIGN_OR_RETURN(auto made,
                           FindOfflineLayer(stored, settings.divides, layer));
    found.layers.push_back(std::move(made));
    for (const char* suffix : {".weight", ".weight_scale"}) {
      found.consumed.push_back(layer + suffix);
    }
  }
  return found;
}

}  // namespace inlay
