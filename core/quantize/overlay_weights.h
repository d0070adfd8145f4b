// OverlayWeights: a source with some of its matrices replaced by float32 ones
// in memory: a network as it will be once these are quantised.
#ifndef INLAY_CORE_QUANTIZE_OVERLAY_WEIGHTS_H_
#define INLAY_CORE_QUANTIZE_OVERLAY_WEIGHTS_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/weight_source.h"

namespace inlay {

// Of the tensor that is a layer's matrix, behind the layer's name.
inline constexpr std::string_view kWeightSuffix = ".weight";

class OverlayWeights : public WeightSource {
 public:
  // A matrix [outputs, inputs], whatever way the base stores it.
  struct Matrix {
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  // By the base's names. A permutation of a replaced matrix's inputs is left
  // out: its columns are in order.
  OverlayWeights(std::shared_ptr<const WeightSource> base,
                 std::map<std::string, Matrix> matrices);

  absl::Span<const WeightInfo> weights() const override { return infos_; }
  const std::byte* Mapped(const WeightInfo& info) const override;
  absl::Status Read(const WeightInfo& info, uint64_t offset,
                    absl::Span<std::byte> destination) const override;

 private:
  std::shared_ptr<const WeightSource> base_;
  std::map<std::string, Matrix> matrices_;
  std::vector<WeightInfo> infos_;
};

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_OVERLAY_WEIGHTS_H_
