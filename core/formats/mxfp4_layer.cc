#include "core/formats/mxfp4_layer.h"

#include <utility>
#include <vector>

#include "core/formats/describe.h"
#include "core/formats/stored_tensor.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kMxfp4Block = 32;

class Mxfp4Layer final : public QuantizedLayer {
 public:
  Mxfp4Layer(const std::string& layer, int64_t n, Grouping grouping,
             const WeightInfo& codes, const WeightInfo& exponents,
             std::shared_ptr<const WeightSource> stored)
      : QuantizedLayer(layer, CodeKind::kMxfp4, n, std::move(grouping)),
        codes_(codes),
        exponents_(exponents),
        stored_(std::move(stored)) {}

 private:
  absl::Status Load(Band& band) const override {
    INLAY_RETURN_IF_ERROR(LoadNibbles(*stored_, codes_, band));
    return ReadStrip(*stored_, exponents_, band.first, band.rows, 0,
                     grouping().groups,
                     reinterpret_cast<std::byte*>(band.scale_codes.data()));
  }

  const WeightInfo& codes_;
  const WeightInfo& exponents_;
  std::shared_ptr<const WeightSource> stored_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const QuantizedLayer>> MakeMxfp4Layer(
    const std::shared_ptr<const WeightSource>& stored, const std::string& layer,
    const std::string& codes, const std::string& scales) {
  INLAY_ASSIGN_OR_RETURN(
      const WeightInfo* pairs,
      StoredMatrix(*stored, layer + codes, {DType::kU8, DType::kI8}));
  const int64_t n = pairs->shape[0];
  const int64_t k = FieldsIn(pairs->shape[1], 2);
  INLAY_RETURN_IF_ERROR(CheckLayerSize(layer, n, k));
  if (k % kMxfp4Block != 0) {
    return absl::UnimplementedError(FormattedString(
        "layer %s has k = %d columns in MXFP4; supported are multiples of %d",
        Quoted(layer), k, kMxfp4Block));
  }
  INLAY_ASSIGN_OR_RETURN(const WeightInfo* exponents,
                         StoredMatrix(*stored, layer + scales, {DType::kU8}));
  INLAY_RETURN_IF_ERROR(CheckShape(*exponents, {n, k / kMxfp4Block}));
  Grouping grouping;
  grouping.k = k;
  grouping.groups = k / kMxfp4Block;
  grouping.group_size = grouping.block = kMxfp4Block;
  return std::make_unique<Mxfp4Layer>(layer, n, std::move(grouping), *pairs,
                                      *exponents, stored);
}

}  // namespace inlay
