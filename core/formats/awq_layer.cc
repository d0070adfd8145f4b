#include "core/formats/awq_layer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/describe.h"
#include "core/formats/stored_tensor.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kAwqFields = 8;
// The field of each of a word's outputs: the inverse of the order in gemm.
constexpr std::array<uint8_t, 8> kAwqFieldOf = {0, 4, 1, 5, 2, 6, 3, 7};
constexpr std::array<uint8_t, 8> kInOrder = {0, 1, 2, 3, 4, 5, 6, 7};

class AwqLayer final : public InputMajorLayer {
 public:
  AwqLayer(const std::string& layer, Grouping grouping,
           const InputMajorTensors& tensors, const ZeroPacking& packing,
           std::shared_ptr<const WeightSource> stored)
      : InputMajorLayer(layer, std::move(grouping), tensors, packing,
                        std::move(stored)) {}

 private:
  // 64 inputs at a time: each output gets a run of 64 bytes.
  absl::Status LoadCodes(Band& band) const override {
    constexpr int64_t kTile = 64;
    const int64_t k = grouping().k;
    const int64_t first_word = band.first / kAwqFields;
    const int64_t words =
        (band.first + band.rows - 1) / kAwqFields + 1 - first_word;
    std::vector<std::byte> tile(static_cast<size_t>(kTile * words * 4));
    for (int64_t i0 = 0; i0 < k; i0 += kTile) {
      const int64_t inputs = std::min(kTile, k - i0);
      INLAY_RETURN_IF_ERROR(ReadStrip(stored(), codes(), i0, inputs,
                                      first_word * 4, words * 4, tile.data()));
      for (int64_t row = 0; row < band.rows; ++row) {
        const int64_t output = band.first + row;
        const int64_t word = output / kAwqFields - first_word;
        const int shift =
            4 * packing().field_of[static_cast<size_t>(output % kAwqFields)];
        uint8_t* const to = band.codes.data() + row * k + i0;
        for (int64_t i = 0; i < inputs; ++i) {
          to[i] = (LoadWord(tile.data(), i * words + word) >> shift & 0xf) ^
                  packing().flipped;
        }
      }
    }
    return absl::OkStatus();
  }
};

struct AwqGemvTensors {
  const WeightInfo* codes = nullptr;
  const WeightInfo* zeros = nullptr;
  const WeightInfo* scales = nullptr;
};

class AwqGemvLayer final : public QuantizedLayer {
 public:
  AwqGemvLayer(const std::string& layer, Grouping grouping,
               const AwqGemvTensors& tensors,
               std::shared_ptr<const WeightSource> stored)
      : QuantizedLayer(layer, CodeKind::kU4, tensors.codes->shape[0],
                       std::move(grouping)),
        tensors_(tensors),
        stored_(std::move(stored)) {}

 private:
  absl::Status Load(Band& band) const override {
    const int64_t groups = grouping().groups;
    INLAY_RETURN_IF_ERROR(ReadFloats(*stored_, *tensors_.scales, band.first,
                                     band.rows, 0, groups, band.scales.data()));
    const int64_t words = (groups - 1) / kAwqFields + 1;
    std::vector<std::byte> zeros(static_cast<size_t>(band.rows * words * 4));
    INLAY_RETURN_IF_ERROR(ReadStrip(*stored_, *tensors_.zeros, band.first,
                                    band.rows, 0, words * 4, zeros.data()));
    for (int64_t row = 0; row < band.rows; ++row) {
      for (int64_t group = 0; group < groups; ++group) {
        const uint32_t word =
            LoadWord(zeros.data(), row * words + group / kAwqFields);
        band.zeros[static_cast<size_t>(row * groups + group)] =
            static_cast<int32_t>(word >> 4 * (group % kAwqFields) & 0xf);
      }
    }
    return LoadCodes(band);
  }

  absl::Status LoadCodes(Band& band) const {
    const int64_t words = grouping().k / kAwqFields;
    std::vector<std::byte> packed(static_cast<size_t>(band.rows * words * 4));
    INLAY_RETURN_IF_ERROR(ReadStrip(*stored_, *tensors_.codes, band.first,
                                    band.rows, 0, words * 4, packed.data()));
    for (int64_t i = 0; i < band.rows * words; ++i) {
      const uint64_t spread = SpreadNibbles(LoadWord(packed.data(), i));
      std::memcpy(band.codes.data() + i * kAwqFields, &spread, sizeof(spread));
    }
    return absl::OkStatus();
  }

  AwqGemvTensors tensors_;
  std::shared_ptr<const WeightSource> stored_;
};

// Of zero points: calculate_zeros_width().
int64_t GemvWords(int64_t groups, int64_t group_size) {
  const int64_t step = group_size >= 128 ? 1 : group_size >= 64 ? 2 : 4;
  return ((groups - 1) / kAwqFields / step + 1) * step;
}

// That of the choices whose groups fill k and fit the scales; else the first.
int64_t GemvGroupSize(const WeightSource& stored, const std::string& layer,
                      int64_t k, const LayerChoices& choices) {
  const WeightInfo* zeros = stored.Find(layer + ".qzeros");
  for (const int64_t size : choices.group_sizes) {
    const int64_t own = std::min(size, k);
    if (zeros != nullptr && zeros->shape.size() == 2 && k % own == 0 &&
        zeros->shape[1] == GemvWords(k / own, own)) {
      return own;
    }
  }
  return std::min(choices.group_sizes.front(), k);
}

absl::StatusOr<std::unique_ptr<const QuantizedLayer>> FindAwqGemvLayer(
    const std::shared_ptr<const WeightSource>& stored,
    const LayerChoices& choices, const std::string& layer) {
  AwqGemvTensors tensors;
  INLAY_ASSIGN_OR_RETURN(
      tensors.codes, StoredMatrix(*stored, layer + ".qweight", {DType::kI32}));
  const int64_t n = tensors.codes->shape[0];
  const int64_t k = FieldsIn(tensors.codes->shape[1], kAwqFields);
  INLAY_RETURN_IF_ERROR(CheckLayerSize(layer, n, k));
  const int64_t group_size = GemvGroupSize(*stored, layer, k, choices);
  if (k % group_size != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "layer %s has k = %d columns, which are not whole groups of %d",
        Quoted(layer), k, group_size));
  }
  const int64_t words = GemvWords(k / group_size, group_size);
  INLAY_ASSIGN_OR_RETURN(
      tensors.zeros, StoredMatrix(*stored, layer + ".qzeros", {DType::kI32}));
  INLAY_RETURN_IF_ERROR(CheckShape(*tensors.zeros, {n, words}));
  INLAY_ASSIGN_OR_RETURN(
      tensors.scales, StoredMatrix(*stored, layer + ".scales", kScaleDTypes));
  INLAY_RETURN_IF_ERROR(CheckShape(*tensors.scales, {n, words * kAwqFields}));
  INLAY_ASSIGN_OR_RETURN(Grouping grouping,
                         ContiguousGroups(layer, k, group_size));
  return std::make_unique<AwqGemvLayer>(layer, std::move(grouping), tensors,
                                        stored);
}

void AddAwqLayer(const std::string& layer,
                 std::unique_ptr<const QuantizedLayer> made,
                 QuantizedLayers& found) {
  found.layers.push_back(std::move(made));
  for (const char* suffix : {".qweight", ".qzeros", ".scales"}) {
    found.consumed.push_back(layer + suffix);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<const QuantizedLayer>> MakeAwqLayer(
    const std::shared_ptr<const WeightSource>& stored, const std::string& layer,
    const std::string& codes, const InputMajorNames& names,
    const AwqScheme& scheme) {
  INLAY_ASSIGN_OR_RETURN(const WeightInfo* words,
                         StoredMatrix(*stored, layer + codes, {DType::kI32}));
  const int64_t k = words->shape[0];
  const int64_t n = FieldsIn(words->shape[1], kAwqFields);
  INLAY_RETURN_IF_ERROR(CheckLayerSize(layer, n, k));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t group_size,
      LayerGroupSize(*stored, layer, names, k, scheme.choices, false));
  INLAY_ASSIGN_OR_RETURN(const InputMajorTensors tensors,
                         FindInputMajorTensors(*stored, layer, names, words, n,
                                               (k - 1) / group_size + 1, 4));
  INLAY_ASSIGN_OR_RETURN(Grouping grouping,
                         ContiguousGroups(layer, k, group_size));
  ZeroPacking packing;
  packing.field_of = scheme.in_order ? kInOrder : kAwqFieldOf;
  // -8 to 7 plus 8.
  if (scheme.is_signed) packing.flipped = 8;
  return std::make_unique<AwqLayer>(layer, std::move(grouping), tensors,
                                    packing, stored);
}

absl::Status AddAwqLayers(const std::shared_ptr<const WeightSource>& stored,
                          const AwqScheme& scheme, QuantizedLayers& found) {
  for (const std::string& layer : LayersWith(*stored, ".qweight")) {
    INLAY_ASSIGN_OR_RETURN(auto made,
                           MakeAwqLayer(stored, layer, ".qweight", {}, scheme));
    AddAwqLayer(layer, std::move(made), found);
  }
  return absl::OkStatus();
}

absl::Status AddAwqGemvLayers(const std::shared_ptr<const WeightSource>& stored,
                              const LayerChoices& choices,
                              QuantizedLayers& found) {
  for (const std::string& layer : LayersWith(*stored, ".qweight")) {
    INLAY_ASSIGN_OR_RETURN(auto made, FindAwqGemvLayer(stored, choices, layer));
    AddAwqLayer(layer, std::move(made), found);
  }
  return absl::OkStatus();
}

}  // namespace inlay
