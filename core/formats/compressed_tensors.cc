// compressed-tensors checkpoints (llm-compressor). Of a layer with k inputs and
// n outputs, by the format of its config group:
//   pack-quantized   weight_packed i32 [n, k * bits / 32]: int4 plus 8 or int8
//                    plus 128, packed along k, lowest field first; weight_shape
//                    i64 [2] = n, k; weight_g_idx i32 [k] with actorder "group"
//   int-quantized    weight i8 [n, k]
//   float-quantized  weight e4m3 [n, k]
//   nvfp4-pack-quantized
//                    weight_packed u8 [n, k / 2], codes of e2m1, the first in
//                    the low nibble; weight_scale e4m3 [n, k / 16] and
//                    weight_global_scale f32 [1], which divides:
//                    weight[o][i] = weight_scale / weight_global_scale * e2m1;
//                    input_global_scale of inputs, which are not rounded here
//   mxfp4-pack-quantized
//                    weight_packed likewise; weight_scale u8 [n, k / 32], an
//                    exponent each (e8m0)
//   mxfp8-quantized  weight e4m3 [n, k]; weight_scale as mxfp4's
//   others           weight_scale by strategy: tensor [1], channel [n, 1], or
//                    of groups [n, k / group_size], of blocks
//                    [n / rows, k / columns];
//                    weight_zero_point where not symmetric: i8 as the scale, or
//                    (pack-quantized) i32 [n * bits / 32, groups], offset as
//                    the codes are, packed along n
//   weight[o][i] = weight_scale * (code - weight_zero_point)
// Which config group a layer is of is seen from its tensors: one that fits them
// decodes them as any other that fits would (with or without weight_g_idx, as
// they have one), so that targets need no matching.
// Source: github.com/vllm-project/compressed-tensors (compressors and
// quantization/quant_args.py).
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "core/formats/describe.h"
#include "core/formats/mxfp4_layer.h"
#include "core/formats/nvfp4_layer.h"
#include "core/formats/quantized_methods.h"
#include "core/formats/quantized_settings.h"
#include "core/formats/row_major_layer.h"
#include "core/formats/stored_tensor.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr DType kExponentDTypes[] = {DType::kU8};

enum class Storage : uint8_t { kPacked, kInt8, kF8, kMxfp8, kNvfp4, kMxfp4 };

bool IsF8(Storage storage) {
  return storage == Storage::kF8 || storage == Storage::kMxfp8;
}
bool IsFp4(Storage storage) {
  return storage == Storage::kNvfp4 || storage == Storage::kMxfp4;
}

// The weights of one config group.
struct Scheme {
  Storage storage = Storage::kPacked;
  int bits = 8;
  bool symmetric = true;
  bool indexed_groups = false;  // actorder "group"
  std::string strategy;
  int64_t group_size = 0;
  ScaleGrid block;
  InputCodes input_codes = InputCodes::kNone;  // as WeightInfo

  bool operator==(const Scheme&) const = default;
};

absl::StatusOr<Storage> ReadStorage(const std::string& format,
                                    const std::string& type) {
  const bool naive = format == "naive-quantized";
  if (type == "int") {
    if (format == "pack-quantized") return Storage::kPacked;
    if (format == "int-quantized" || naive) return Storage::kInt8;
  } else if (type == "float") {
    if (format == "float-quantized" || naive) return Storage::kF8;
    if (format == "nvfp4-pack-quantized") return Storage::kNvfp4;
    if (format == "mxfp4-pack-quantized") return Storage::kMxfp4;
    if (format == "mxfp8-quantized") return Storage::kMxfp8;
  } else {
    return UnsupportedSetting("type", type, "int, float");
  }
  return UnsupportedSetting(
      "format", FormattedString("%s of type %s", format, type),
      "pack-quantized and int-quantized of type int, float-quantized, "
      "mxfp4-pack-quantized, mxfp8-quantized and nvfp4-pack-quantized of type "
      "float, naive-quantized");
}

absl::Status ReadActOrder(const Json& weights, Scheme& scheme) {
  const Json* order = JsonFind(weights, "actorder");
  if (order == nullptr) return absl::OkStatus();
  const std::string name = order->is_string() ? order->get<std::string>()
                           : order->is_boolean()
                               ? (order->get<bool>() ? "group" : "weight")
                               : "";
  scheme.indexed_groups = name == "group" || name == "dynamic";
  if (scheme.indexed_groups || name == "weight" || name == "static") {
    return absl::OkStatus();
  }
  return UnsupportedSetting("actorder", ShownJson(*order),
                            "null, group, weight");
}

absl::Status ReadStrategy(const Json& weights, Scheme& scheme) {
  INLAY_ASSIGN_OR_RETURN(scheme.strategy,
                         JsonString(weights, "strategy", "tensor"));
  const std::string& strategy = scheme.strategy;
  if (strategy == "tensor" || strategy == "channel") return absl::OkStatus();
  if (strategy == "group") {
    INLAY_ASSIGN_OR_RETURN(scheme.group_size, GroupSizeSetting(weights, -1));
    return absl::OkStatus();
  }
  if (strategy != "block") {
    return UnsupportedSetting("strategy", strategy,
                              "tensor, channel, group, block");
  }
  const Json* block = JsonFind(weights, "block_structure");
  INLAY_ASSIGN_OR_RETURN(
      scheme.block,
      BlockSetting("block_structure", block == nullptr ? Json() : *block));
  return absl::OkStatus();
}

// Of a format that has one layout: it must be told as it is.
struct FixedLayout {
  const char* format;
  int64_t bits;
  const char* strategy;
  int64_t group_size;
};

FixedLayout LayoutOf(Storage storage) {
  if (storage == Storage::kNvfp4) {
    return {"nvfp4-pack-quantized", 4, "tensor_group", 16};
  }
  if (storage == Storage::kMxfp4) {
    return {"mxfp4-pack-quantized", 4, "group", 32};
  }
  return {"mxfp8-quantized", 8, "group", 32};
}

absl::Status CheckLayout(const Json& weights, int64_t bits,
                         const FixedLayout& want) {
  if (bits != want.bits) {
    return UnsupportedSetting("num_bits", FormattedString("%d", bits),
                              FormattedString("%d", want.bits));
  }
  INLAY_ASSIGN_OR_RETURN(const std::string strategy,
                         JsonString(weights, "strategy", want.strategy));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t group_size,
      JsonInt(weights, "group_size", want.group_size, 0, 1 << 20));
  INLAY_ASSIGN_OR_RETURN(const bool symmetric,
                         JsonBool(weights, "symmetric", true));
  if (strategy != want.strategy || group_size != want.group_size ||
      !symmetric) {
    return UnsupportedSetting(
        "weights",
        FormattedString("%s, groups of %d%s", strategy, group_size,
                        symmetric ? "" : ", not symmetric"),
        FormattedString("%s, groups of %d, symmetric for %s", want.strategy,
                        want.group_size, want.format));
  }
  Scheme order;
  INLAY_RETURN_IF_ERROR(ReadActOrder(weights, order));
  if (!order.indexed_groups) return absl::OkStatus();
  return UnsupportedSetting(
      "actorder", "group", FormattedString("null, weight for %s", want.format));
}

absl::StatusOr<Scheme> ReadScheme(const Json& weights,
                                  const std::string& format) {
  Scheme scheme;
  INLAY_ASSIGN_OR_RETURN(const std::string type,
                         JsonString(weights, "type", "int"));
  INLAY_ASSIGN_OR_RETURN(scheme.storage, ReadStorage(format, type));
  INLAY_ASSIGN_OR_RETURN(const int64_t bits,
                         JsonInt(weights, "num_bits", 8, 0, 64));
  if (IsFp4(scheme.storage) || scheme.storage == Storage::kMxfp8) {
    const FixedLayout layout = LayoutOf(scheme.storage);
    INLAY_RETURN_IF_ERROR(CheckLayout(weights, bits, layout));
    scheme.strategy = layout.strategy;
    scheme.group_size = layout.group_size;
    return scheme;
  }
  if (bits != 8 && (bits != 4 || scheme.storage == Storage::kF8)) {
    return UnsupportedSetting("num_bits", FormattedString("%d", bits),
                              scheme.storage == Storage::kF8 ? "8" : "4, 8");
  }
  scheme.bits = static_cast<int>(bits);
  INLAY_ASSIGN_OR_RETURN(scheme.symmetric,
                         JsonBool(weights, "symmetric", true));
  if (scheme.storage == Storage::kF8 && !scheme.symmetric) {
    return UnsupportedSetting("symmetric", "false", "true for floats");
  }
  INLAY_RETURN_IF_ERROR(ReadActOrder(weights, scheme));
  INLAY_RETURN_IF_ERROR(ReadStrategy(weights, scheme));
  return scheme;
}

// Of a config group, whose weights may be read with any inputs.
absl::StatusOr<InputCodes> ReadInputCodes(const Json& group) {
  const Json* inputs = JsonFind(group, "input_activations");
  if (inputs == nullptr || !inputs->is_object()) return InputCodes::kNone;
  INLAY_ASSIGN_OR_RETURN(const std::string type,
                         JsonString(*inputs, "type", "int"));
  INLAY_ASSIGN_OR_RETURN(const int64_t bits,
                         JsonInt(*inputs, "num_bits", 8, 0, 64));
  INLAY_ASSIGN_OR_RETURN(const bool symmetric,
                         JsonBool(*inputs, "symmetric", true));
  INLAY_ASSIGN_OR_RETURN(const std::string strategy,
                         JsonString(*inputs, "strategy", "tensor"));
  const Json* dynamic = JsonFind(*inputs, "dynamic");
  if (bits != 8 || !symmetric) return InputCodes::kNone;
  if (type == "float") return InputCodes::kFp8;
  return type == "int" && strategy == "token" && dynamic != nullptr &&
                 dynamic->is_boolean() && dynamic->get<bool>()
             ? InputCodes::kInt8
             : InputCodes::kNone;
}

// That nothing else was done to the weights. The status is theirs.
absl::Status CheckCtWhole(const Json& config, bool rounds_weights) {
  INLAY_ASSIGN_OR_RETURN(
      const std::string status,
      JsonString(config, "quantization_status", "compressed"));
  if (rounds_weights && status != "compressed") {
    return UnsupportedSetting("quantization_status", status, "compressed");
  }
  const Json* sparsity = JsonFind(config, "sparsity_config");
  if (sparsity != nullptr && !sparsity->empty()) {
    INLAY_ASSIGN_OR_RETURN(const std::string format,
                           JsonString(*sparsity, "format", "dense"));
    if (format != "dense") {
      return UnsupportedSetting("sparsity_config", format, "dense");
    }
  }
  const Json* transform = JsonFind(config, "transform_config");
  if (transform != nullptr && !transform->empty()) {
    return UnsupportedSetting("transform_config", ShownJson(*transform),
                              "none");
  }
  return CheckNames(config, "ignore");
}

// None: weights are not rounded.
absl::StatusOr<std::vector<Scheme>> ReadCtConfig(const Json& config) {
  const bool rounds_weights = RoundsWeights(config);
  INLAY_RETURN_IF_ERROR(CheckCtWhole(config, rounds_weights));
  if (!rounds_weights) return std::vector<Scheme>();
  INLAY_ASSIGN_OR_RETURN(const std::string format,
                         JsonString(config, "format", ""));
  const Json* groups = JsonFind(config, "config_groups");
  if (groups == nullptr || !groups->is_object()) {
    return BadSetting("config_groups", groups == nullptr ? Json() : *groups,
                      "an object");
  }
  std::vector<Scheme> schemes;
  for (const auto& [name, group] : groups->items()) {
    if (!group.is_object()) {
      return BadSetting("config_groups", group, "objects in it");
    }
    INLAY_RETURN_IF_ERROR(CheckNames(group, "targets"));
    INLAY_ASSIGN_OR_RETURN(const std::string own,
                           JsonString(group, "format", format));
    const Json* weights = JsonFind(group, "weights");
    if (weights == nullptr) continue;  // activations alone
    if (!weights->is_object()) {
      return BadSetting("weights", *weights, "an object");
    }
    INLAY_ASSIGN_OR_RETURN(Scheme scheme, ReadScheme(*weights, own));
    INLAY_ASSIGN_OR_RETURN(scheme.input_codes, ReadInputCodes(group));
    // Each is tried on every layer.
    if (std::find(schemes.begin(), schemes.end(), scheme) == schemes.end()) {
      schemes.push_back(scheme);
    }
  }
  if (schemes.empty()) {
    return BadSetting("config_groups", *groups, "one group or more");
  }
  return schemes;
}

ScaleGrid CtGrid(const Scheme& scheme, int64_t n, int64_t k) {
  if (scheme.strategy == "tensor") return {n, k};
  if (scheme.strategy == "channel") return {1, k};
  if (scheme.strategy == "group") return {1, scheme.group_size};
  return scheme.block;
}

struct LayerSize {
  int64_t n = 0;
  int64_t k = 0;
};

// Of the codes; for packed ones weight_shape says.
absl::StatusOr<LayerSize> ReadCtSize(const WeightSource& stored,
                                     const Scheme& scheme,
                                     const std::string& layer,
                                     const WeightInfo& codes) {
  LayerSize size{codes.shape[0], codes.shape[1]};
  if (scheme.storage == Storage::kPacked) {
    INLAY_ASSIGN_OR_RETURN(
        const WeightInfo* shape,
        StoredTensor(stored, layer + ".weight_shape", {DType::kI64}));
    INLAY_RETURN_IF_ERROR(CheckShape(*shape, {2}));
    int64_t values[2];
    INLAY_RETURN_IF_ERROR(stored.Read(
        *shape, 0,
        absl::MakeSpan(reinterpret_cast<std::byte*>(values), sizeof(values))));
    size = {values[0], values[1]};
  }
  INLAY_RETURN_IF_ERROR(CheckLayerSize(layer, size.n, size.k));
  if (scheme.storage == Storage::kPacked) {
    const int64_t fields = 32 / scheme.bits;
    INLAY_RETURN_IF_ERROR(
        CheckShape(codes, {size.n, (size.k - 1) / fields + 1}));
  }
  return size;
}

absl::StatusOr<const WeightInfo*> FindCtZeros(const WeightSource& stored,
                                              const Scheme& scheme,
                                              const std::string& layer,
                                              const ScaleGrid& grid,
                                              const LayerSize& size) {
  const std::string name = layer + ".weight_zero_point";
  if (IsF8(scheme.storage) ||
      (scheme.symmetric && stored.Find(name) == nullptr)) {
    return nullptr;
  }
  INLAY_ASSIGN_OR_RETURN(const WeightInfo* zeros,
                         StoredTensor(stored, name, {DType::kI8, DType::kI32}));
  if (zeros->dtype == DType::kI8) {
    INLAY_RETURN_IF_ERROR(CheckGrid(*zeros, grid, size.n, size.k));
    return zeros;
  }
  // Packed ones come with a row of scales an output.
  const int64_t fields = 32 / scheme.bits;
  const int64_t groups = (size.k - 1) / std::min(grid.columns, size.k) + 1;
  if (scheme.storage != Storage::kPacked || grid.rows != 1) {
    return UnsupportedSetting("strategy", scheme.strategy,
                              "group and channel with packed zero points");
  }
  INLAY_RETURN_IF_ERROR(
      CheckShape(*zeros, {(size.n - 1) / fields + 1, groups}));
  return zeros;
}

absl::StatusOr<Grouping> FindCtGrouping(const WeightSource& stored,
                                        const Scheme& scheme,
                                        const std::string& layer,
                                        const ScaleGrid& grid, int64_t k) {
  const std::string name = layer + ".weight_g_idx";
  if (!scheme.indexed_groups) {
    return ContiguousGroups(layer, k, grid.columns);
  }
  INLAY_ASSIGN_OR_RETURN(const WeightInfo* info,
                         StoredTensor(stored, name, {DType::kI32}));
  INLAY_RETURN_IF_ERROR(CheckShape(*info, {k}));
  INLAY_ASSIGN_OR_RETURN(const std::vector<int32_t> index,
                         ReadInts(stored, *info));
  return IndexedGroups(layer, index, (k - 1) / std::min(grid.columns, k) + 1);
}

absl::StatusOr<std::unique_ptr<const QuantizedLayer>> FindCtLayer(
    const std::shared_ptr<const WeightSource>& stored, const Scheme& scheme,
    const std::string& layer) {
  if (scheme.storage == Storage::kNvfp4) {
    return MakeNvfp4Layer(
        stored, layer,
        {".weight_packed", ".weight_scale", ".weight_global_scale", true});
  }
  if (scheme.storage == Storage::kMxfp4) {
    return MakeMxfp4Layer(stored, layer, ".weight_packed", ".weight_scale");
  }
  const bool packed = scheme.storage == Storage::kPacked;
  const DType dtype = packed                             ? DType::kI32
                      : scheme.storage == Storage::kInt8 ? DType::kI8
                                                         : DType::kF8E4M3;
  RowMajorTensors tensors;
  tensors.kind = IsF8(scheme.storage)         ? CodeKind::kF8
                 : packed && scheme.bits == 4 ? CodeKind::kU4
                                              : CodeKind::kI8;
  INLAY_ASSIGN_OR_RETURN(
      tensors.codes,
      StoredMatrix(*stored, layer + (packed ? ".weight_packed" : ".weight"),
                   {dtype}));
  INLAY_ASSIGN_OR_RETURN(const LayerSize size,
                         ReadCtSize(*stored, scheme, layer, *tensors.codes));
  tensors.grid = CtGrid(scheme, size.n, size.k);
  tensors.input_codes = scheme.input_codes;
  INLAY_ASSIGN_OR_RETURN(tensors.scales,
                         StoredTensor(*stored, layer + ".weight_scale",
                                      scheme.storage == Storage::kMxfp8
                                          ? absl::MakeConstSpan(kExponentDTypes)
                                          : absl::MakeConstSpan(kScaleDTypes)));
  INLAY_RETURN_IF_ERROR(
      CheckGrid(*tensors.scales, tensors.grid, size.n, size.k));
  INLAY_ASSIGN_OR_RETURN(
      tensors.zeros, FindCtZeros(*stored, scheme, layer, tensors.grid, size));
  INLAY_RETURN_IF_ERROR(CheckInputScale(*stored, layer));
  INLAY_ASSIGN_OR_RETURN(
      Grouping grouping,
      FindCtGrouping(*stored, scheme, layer, tensors.grid, size.k));
  return std::make_unique<RowMajorLayer>(layer, size.n, std::move(grouping),
                                         tensors, stored);
}

// The scheme that the tensors fit: of several the first, one with their groups
// in order or not before others. Where these disagree about inputs, inputs are
// kept, for only names would tell. Else why the first does not fit.
absl::StatusOr<Scheme> FindCtScheme(
    const std::shared_ptr<const WeightSource>& stored,
    const std::vector<Scheme>& schemes, const std::string& layer) {
  const bool indexed = stored->Find(layer + ".weight_g_idx") != nullptr;
  absl::Status first;
  for (const bool as_stored : {true, false}) {
    std::optional<Scheme> found;
    for (const Scheme& scheme : schemes) {
      if ((scheme.indexed_groups == indexed) != as_stored) continue;
      const absl::Status fits = FindCtLayer(stored, scheme, layer).status();
      first.Update(fits);
      if (!fits.ok()) continue;
      if (!found.has_value()) found = scheme;
      if (scheme.input_codes != found->input_codes) {
        found->input_codes = InputCodes::kNone;
      }
    }
    if (found.has_value()) return *found;
  }
  return first;
}

absl::Status AddCtLayer(const std::shared_ptr<const WeightSource>& stored,
                        const std::vector<Scheme>& schemes,
                        const std::string& layer, QuantizedLayers& found) {
  Scheme scheme = schemes.front();
  if (schemes.size() > 1) {
    INLAY_ASSIGN_OR_RETURN(scheme, FindCtScheme(stored, schemes, layer));
  }
  INLAY_ASSIGN_OR_RETURN(auto made, FindCtLayer(stored, scheme, layer));
  found.layers.push_back(std::move(made));
  const bool packed =
      scheme.storage == Storage::kPacked || IsFp4(scheme.storage);
  found.consumed.push_back(layer + (packed ? ".weight_packed" : ".weight"));
  for (const char* suffix :
       {".weight_shape", ".weight_scale", ".weight_zero_point", ".weight_g_idx",
        ".weight_global_scale", ".input_scale", ".input_zero_point",
        ".input_global_scale"}) {
    found.consumed.push_back(layer + suffix);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<QuantizedLayers> FindCompressedTensorsLayers(
    const Json& config, const std::shared_ptr<const WeightSource>& stored,
    std::string_view) {
  INLAY_ASSIGN_OR_RETURN(const std::vector<Scheme> schemes,
                         ReadCtConfig(config));
  QuantizedLayers found;
  if (schemes.empty()) return found;
  for (const std::string& layer : LayersWith(*stored, ".weight_packed")) {
    INLAY_RETURN_IF_ERROR(AddCtLayer(stored, schemes, layer, found));
  }
  for (const std::string& layer : LayersWith(*stored, ".weight")) {
    const DType dtype = stored->Find(layer + ".weight")->dtype;
    if (dtype != DType::kI8 && dtype != DType::kF8E4M3) continue;
    INLAY_RETURN_IF_ERROR(AddCtLayer(stored, schemes, layer, found));
  }
  return found;
}

}  // namespace inlay
