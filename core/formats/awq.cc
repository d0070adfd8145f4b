// AWQ checkpoints (AutoAWQ, "gemm" layout). Of a layer with k inputs, n
// outputs:
//   qweight i32 [k, n / 8]        outputs packed into words
//   qzeros  i32 [groups, n / 8]   likewise
//   scales  [groups, n]
//
//   weight[o][i] = scales[g][o] * (code[i][o] - zero[g][o])
//   g = i / group_size
//
// Field f of word c holds output 8 c + {0, 2, 4, 6, 1, 3, 5, 7}[f].
// Source: the file layout of github.com/casper-hansen/AutoAWQ (WQLinear_GEMM).
#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "core/formats/input_major_layer.h"
#include "core/formats/quantized_methods.h"
#include "core/formats/quantized_settings.h"
#include "core/formats/stored_tensor.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kAwqFields = 8;
// The field of each of a word's outputs: the inverse of the order above.
constexpr std::array<uint8_t, 8> kAwqFieldOf = {0, 4, 1, 5, 2, 6, 3, 7};

// The group size.
absl::StatusOr<int64_t> ReadAwqGroupSize(const Json& config) {
  INLAY_ASSIGN_OR_RETURN(const int64_t bits, JsonInt(config, "bits", 4, 0, 64));
  if (bits != 4) {
    return UnsupportedSetting("bits", FormattedString("%d", bits), "4");
  }
  INLAY_ASSIGN_OR_RETURN(const std::string version,
                         JsonString(config, "version", "gemm"));
  if (absl::AsciiStrToLower(version) != "gemm") {
    return UnsupportedSetting("version", version, "gemm");
  }
  INLAY_ASSIGN_OR_RETURN(const bool zero_point,
                         JsonBool(config, "zero_point", true));
  if (!zero_point) return UnsupportedSetting("zero_point", "false", "true");
  INLAY_RETURN_IF_ERROR(CheckNames(config, "modules_to_not_convert"));
  return GroupSizeSetting(config, 128);
}

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
            4 * kAwqFieldOf[static_cast<size_t>(output % kAwqFields)];
        uint8_t* const to = band.codes.data() + row * k + i0;
        for (int64_t i = 0; i < inputs; ++i) {
          to[i] = LoadWord(tile.data(), i * words + word) >> shift & 0xf;
        }
      }
    }
    return absl::OkStatus();
  }
};

absl::StatusOr<std::unique_ptr<const QuantizedLayer>> FindAwqLayer(
    const std::shared_ptr<const WeightSource>& stored, int64_t group_size,
    const std::string& layer) {
  INLAY_ASSIGN_OR_RETURN(
      const WeightInfo* codes,
      StoredMatrix(*stored, layer + ".qweight", {DType::kI32}));
  const int64_t k = codes->shape[0];
  const int64_t n = FieldsIn(codes->shape[1], kAwqFields);
  INLAY_RETURN_IF_ERROR(CheckLayerSize(layer, n, k));
  const int64_t groups = (k - 1) / std::min(group_size, k) + 1;
  INLAY_ASSIGN_OR_RETURN(
      const InputMajorTensors tensors,
      FindInputMajorTensors(*stored, layer, codes, n, groups, 4));
  INLAY_ASSIGN_OR_RETURN(Grouping grouping,
                         ContiguousGroups(layer, k, group_size));
  ZeroPacking packing;
  packing.field_of = kAwqFieldOf;
  return std::make_unique<AwqLayer>(layer, std::move(grouping), tensors,
                                    packing, stored);
}

}  // namespace

absl::StatusOr<QuantizedLayers> FindAwqLayers(
    const Json& config, const std::shared_ptr<const WeightSource>& stored,
    std::string_view) {
  INLAY_ASSIGN_OR_RETURN(const int64_t group_size, ReadAwqGroupSize(config));
  QuantizedLayers found;
  for (const std::string& layer : LayersWith(*stored, ".qweight")) {
    INLAY_ASSIGN_OR_RETURN(auto made, FindAwqLayer(stored, group_size, layer));
    found.layers.push_back(std::move(made));
    for (const char* suffix : {".qweight", ".qzeros", ".scales"}) {
      found.consumed.push_back(layer + suffix);
    }
  }
  return found;
}

}  // namespace inlay
