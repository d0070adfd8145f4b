// OverlayWeights: a source with some of its matrices replaced by others in
// memory, which are float32: a network as it will be once these are quantised.
// Those of experts may stay in blocks until they are lent.
#ifndef INLAY_CORE_QUANTIZE_OVERLAY_WEIGHTS_H_
#define INLAY_CORE_QUANTIZE_OVERLAY_WEIGHTS_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/weight_source.h"
#include "core/model/expert_lender.h"

namespace inlay {

// Of the tensor that is a layer's matrix, behind the layer's name.
inline constexpr std::string_view kWeightSuffix = ".weight";

class OverlayWeights : public WeightSource, public ExpertLender {
 public:
  // A matrix [outputs, inputs], whatever way the base stores it.
  struct Matrix {
    std::vector<int64_t> shape;
    std::vector<float> values;
    // In place of values, rows in this format: decoded when it is lent.
    std::vector<std::byte> blocks;
    DType format = DType::kF32;

    uint64_t float_bytes() const;
  };
  // By the base's names. A permutation of a replaced matrix's inputs is left
  // out: its columns are in order. `lent_bytes`: what matrices that are lent
  // may take in float32 at a time, one whatever this is: they are kept from the
  // first time on while there is room, others decoded each time.
  OverlayWeights(std::shared_ptr<const WeightSource> base,
                 std::map<std::string, Matrix> matrices, uint64_t lent_bytes);

  absl::Span<const WeightInfo> weights() const override { return infos_; }
  // Null of matrices that are lent.
  const std::byte* Mapped(const WeightInfo& info) const override;
  uint64_t LeavePages(FileRange range) const override {
    return base_->LeavePages(range);
  }
  // INVALID_ARGUMENT for matrices that are lent.
  absl::Status Read(const WeightInfo& info, uint64_t offset,
                    absl::Span<std::byte> destination) const override;

  // ExpertLender. Not while another thread calls it.
  bool Lends(const WeightInfo& info) const override;
  absl::StatusOr<const std::byte*> Lend(const WeightInfo& info,
                                        Stream& stream) override;

 private:
  std::shared_ptr<const WeightSource> base_;
  const std::map<std::string, Matrix> matrices_;
  std::vector<WeightInfo> infos_;
  uint64_t room_ = 0;  // for matrices that are kept
  std::map<std::string, std::vector<float>> kept_;
  std::vector<float> scratch_;  // of the matrix that was lent last
};

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_OVERLAY_WEIGHTS_H_
