// Norm: RMSNorm or LayerNorm with its weights and kernel, or nothing.
//
// Where there is no norm but x and y are of different types, an RMSNorm that
// changes nothing else converts: its epsilon is so large that no mean square
// counts beside it, and its weights undo the division, both by powers of two.
// The same multiplies channels by factors of their own, as other weights.
#ifndef INLAY_CORE_MODEL_LAYERS_NORM_H_
#define INLAY_CORE_MODEL_LAYERS_NORM_H_

#include "absl/status/statusor.h"
#include "core/model/decoder_spec.h"
#include "core/model/model_build.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/rms_norm/rms_norm.h"

namespace inlay {

// Of the norm that only converts: exact for rows whose root mean square is
// below 2^37.
inline constexpr float kConvertEpsilon = 0x1p100f;
inline constexpr float kConvertWeight = 0x1p50f;

class Norm {
 public:
  Norm() = default;
  // For parts whose input is normalised already.
  static const Norm& None();
  // `input`, `output`: dtypes of x and y.
  static absl::StatusOr<Norm> Create(const NormSpec& spec, int64_t width,
                                     DType input, DType output,
                                     ModelBuild& build);
  // Copies rows, converting them where `input` is not `output`.
  static absl::StatusOr<Norm> Copy(int64_t width, DType input, DType output,
                                   ModelBuild& build);

  // Multiplies channels, rows of whose root mean square is below 2^37; nothing
  // where `spec` has no name.
  static absl::StatusOr<Norm> Channels(const ChannelSpec& spec, int64_t width,
                                       DType type, ModelBuild& build);

  bool present() const { return kind_ != NormKind::kNone; }
  bool is_rms() const { return rms_.row != nullptr; }
  const float* weight() const { return weight_; }  // may be null
  float epsilon() const { return epsilon_; }
  // x and y [rows, width]; y may be x where their dtypes agree. Must be
  // present.
  absl::Status Forward(const TensorView& x, const TensorView& y,
                       Stream& stream) const;
  // NormSpec::heads.
  bool has_own_weights() const { return heads_ > 0; }
  // Where has_own_weights(): y [rows, heads * width], in place, a head after
  // the other.
  absl::Status ForwardHeads(const TensorView& y, Stream& stream) const;

 private:
  // What kind kNone converts, whatever the types.
  static absl::StatusOr<Norm> Make(const NormSpec& spec, int64_t width,
                                   DType input, DType output,
                                   ModelBuild& build);
  static absl::StatusOr<const float*> LoadWeight(const NormSpec& spec,
                                                 int64_t width,
                                                 ModelBuild& build);

  NormKind kind_ = NormKind::kNone;
  float epsilon_ = 0.0f;
  int heads_ = 0;
  const float* weight_ = nullptr;
  const float* bias_ = nullptr;
  Op<RmsNormDesc, RmsNormParams> rms_;
  Op<LayerNormDesc, LayerNormParams> layer_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_NORM_H_
