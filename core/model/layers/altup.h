// AltUp: a residual stream that is several, of which a layer's blocks read and
// write one (kernels/altup): what a layer does before and after them, and how
// the streams begin and end; with weights and kernels, or nothing.
#ifndef INLAY_CORE_MODEL_LAYERS_ALTUP_H_
#define INLAY_CORE_MODEL_LAYERS_ALTUP_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/decoder_spec.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/step.h"
#include "core/model/model_build.h"
#include "kernels/altup/altup.h"

namespace inlay {

// Matrices are [tokens, width] and the streams [tokens, count * width], all
// float32.
class AltUpLayer {
 public:
  AltUpLayer() = default;  // none
  static absl::StatusOr<AltUpLayer> Create(const AltUpSpec& spec,
                                           const std::string& prefix,
                                           int64_t hidden_size,
                                           ModelBuild& build);

  bool present() const { return predict_.row != nullptr; }
  // Predicts all streams; x: the active one.
  absl::Status Predict(const TensorView& streams, const TensorView& x,
                       Stream& stream) const;
  // Corrects all by x, which the blocks have made of the active one, and leaves
  // that in x, scaled.
  absl::Status Correct(const TensorView& streams, const TensorView& x,
                       Stream& stream) const;
  // To all streams but the first.
  absl::Status Add(const TensorView& y, const TensorView& streams,
                   Stream& stream) const;

 private:
  Op<AltUpDesc, AltUpPredictParams> predict_;
  Op<AltUpDesc, AltUpCorrectParams> correct_;
  Op<AltUpDesc, AltUpAddParams> add_;
  const float* router_ = nullptr;
  const float* router_norm_ = nullptr;
  const float* prediction_ = nullptr;
  const float* correction_ = nullptr;
  const float* scale_ = nullptr;  // null: none
};

class AltUpEnds {
 public:
  // Room for Begin() and Merge().
  struct Scratch {
    TensorView x;  // [tokens, width] of ModelBuild::activation
    TensorView y;  // [tokens, width] f32; Begin() does not use it
    void* kernel = nullptr;
  };

  AltUpEnds() = default;  // none
  static absl::StatusOr<AltUpEnds> Create(const AltUpSpec& spec,
                                          int64_t hidden_size,
                                          ModelBuild& build);

  bool present() const { return copy_.present(); }
  size_t KernelBytes(int64_t tokens) const;
  // Streams of embeddings.
  absl::Status Begin(const TensorView& embeddings, const TensorView& streams,
                     const Scratch& scratch, Stream& stream) const;
  // merged: the sum of all streams, the others brought to the first one's
  // magnitude.
  absl::Status Merge(const TensorView& streams, const TensorView& merged,
                     const Scratch& scratch, Stream& stream) const;

 private:
  int64_t width_ = 0;
  Norm copy_;     // f32
  Norm convert_;  // to what projections read
  std::vector<Linear> projections_;
  std::vector<Linear> unembeddings_;
  Op<MatchMagnitudeDesc, MatchMagnitudeParams> match_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_ALTUP_H_
