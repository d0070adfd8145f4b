#include "core/model/layers/norm.h"

#include <cmath>
#include <string>
#include <vector>

#include "core/model/layers/step.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Not in a function: a child forked while another thread makes it there would
// wait for that thread. The same of other constants.
const Norm kNoNorm;

float MapWeight(WeightMap map, float scaled) {
  switch (map) {
    case WeightMap::kSquare:
      return scaled * scaled;
    case WeightMap::kSize:
      return std::fabs(scaled);
    case WeightMap::kRest:
      return 1.0f - std::fabs(scaled);
    case WeightMap::kNone:
    case WeightMap::kScaled:
      break;
  }
  return scaled;
}

}  // namespace

const Norm& Norm::None() { return kNoNorm; }

absl::StatusOr<const float*> Norm::LoadWeight(const NormSpec& spec,
                                              int64_t width,
                                              ModelBuild& build) {
  if (spec.kind == NormKind::kNone) {
    return build.weights.Constants(
        std::vector<float>(static_cast<size_t>(width), kConvertWeight));
  }
  if (spec.name.empty()) {
    if (spec.factor == 1.0f) return nullptr;
    return build.weights.Constants(
        std::vector<float>(static_cast<size_t>(width), spec.factor));
  }
  if (spec.heads > 0) {
    INLAY_DCHECK(spec.kind == NormKind::kLayerNoBias);
    if (spec.heads_apart) {
      std::vector<WeightLoader::Rows> heads;
      for (int i = 0; i < spec.heads; ++i) {
        heads.push_back({FormattedString("%s.%d.weight", spec.name, i), width});
      }
      return build.weights.StackedVector(heads, VectorKind::kScale);
    }
    return build.weights.Floats(spec.name + std::string(spec.suffix),
                                spec.heads, width, VectorKind::kScale);
  }
  INLAY_DCHECK((spec.factor == 1.0f && spec.map == WeightMap::kNone) ||
               spec.kind == NormKind::kRms);
  if (spec.map != WeightMap::kNone) {
    return build.weights.Mapped(spec.name + std::string(spec.suffix), width,
                                VectorKind::kScale, [&](float w) {
                                  return spec.factor *
                                         MapWeight(spec.map, w * spec.scale);
                                });
  }
  return build.weights.Vector(spec.name + std::string(spec.suffix), width,
                              IsZeroCentred(spec.kind)
                                  ? VectorKind::kZeroCentredScale
                                  : VectorKind::kScale,
                              spec.factor);
}

absl::StatusOr<Norm> Norm::Create(const NormSpec& spec, int64_t width,
                                  DType input, DType output,
                                  ModelBuild& build) {
  if (spec.kind == NormKind::kNone && input == output) return Norm();
  return Make(spec, width, input, output, build);
}

absl::StatusOr<Norm> Norm::Copy(int64_t width, DType input, DType output,
                                ModelBuild& build) {
  return Make(NormSpec(), width, input, output, build);
}

absl::StatusOr<Norm> Norm::Channels(const ChannelSpec& spec, int64_t width,
                                    DType type, ModelBuild& build) {
  if (spec.name.empty()) return Norm();
  NormSpec norm;
  norm.kind = NormKind::kRms;
  norm.name = spec.name;
  norm.epsilon = kConvertEpsilon;
  norm.suffix = "";
  norm.factor = spec.factor * kConvertWeight;
  norm.map = spec.map;
  norm.scale = spec.scale;
  return Make(norm, width, type, type, build);
}

absl::StatusOr<Norm> Norm::Make(const NormSpec& spec, int64_t width,
                                DType input, DType output, ModelBuild& build) {
  Norm norm;
  const bool converts = spec.kind == NormKind::kNone;
  norm.kind_ = converts ? NormKind::kRms : spec.kind;
  norm.epsilon_ = converts ? kConvertEpsilon : spec.epsilon;
  norm.heads_ = spec.heads;
  INLAY_ASSIGN_OR_RETURN(norm.weight_, LoadWeight(spec, width, build));
  if (IsLayerNorm(spec.kind) && spec.kind != NormKind::kLayerNoBias) {
    INLAY_ASSIGN_OR_RETURN(
        norm.bias_,
        build.weights.Vector(spec.name + ".bias", width, VectorKind::kBias));
  }
  if (IsLayerNorm(spec.kind)) {
    LayerNormDesc desc;
    desc.width = width;
    desc.activation = input;
    desc.output = output;
    INLAY_ASSIGN_OR_RETURN(
        norm.layer_,
        build.kernels.Choose("layer_norm", LayerNormTable(), desc));
  } else {
    RmsNormDesc desc;
    desc.width = width;
    desc.activation = input;
    desc.output = output;
    INLAY_ASSIGN_OR_RETURN(
        norm.rms_, build.kernels.Choose("rms_norm", RmsNormTable(), desc));
  }
  return norm;
}

absl::Status Norm::ForwardHeads(const TensorView& y, Stream& stream) const {
  const int64_t width = layer_.desc.width;
  for (int head = 0; head < heads_; ++head) {
    LayerNormParams params;
    params.x = params.y = ColumnSlice(y, head * width, width);
    params.weight = weight_ + head * width;
    params.epsilon = epsilon_;
    INLAY_RETURN_IF_ERROR(layer_.Run(params, stream));
  }
  return absl::OkStatus();
}

absl::Status Norm::Forward(const TensorView& x, const TensorView& y,
                           Stream& stream) const {
  if (IsLayerNorm(kind_)) {
    LayerNormParams params;
    params.x = x;
    params.weight = weight_;
    params.bias = bias_;
    params.epsilon = epsilon_;
    params.y = y;
    return layer_.Run(params, stream);
  }
  RmsNormParams params;
  params.x = x;
  params.weight = weight_;
  params.epsilon = epsilon_;
  params.y = y;
  return rms_.Run(params, stream);
}

}  // namespace inlay
