#include "core/model/layers/altup.h"

#include <algorithm>
#include <utility>

#include "memory/status.h"

namespace inlay {

absl::StatusOr<AltUpLayer> AltUpLayer::Create(const AltUpSpec& spec,
                                              const std::string& prefix,
                                              int64_t hidden_size,
                                              ModelBuild& build) {
  AltUpDesc desc;
  desc.num_streams = spec.count;
  desc.width = hidden_size;
  desc.active = spec.active;
  desc.norm_epsilon = spec.norm_epsilon;
  INLAY_RETURN_IF_ERROR(ValidateAltUp(desc));
  AltUpLayer layer;
  INLAY_ASSIGN_OR_RETURN(
      layer.predict_,
      build.kernels.Choose("altup_predict", AltUpPredictTable(), desc));
  INLAY_ASSIGN_OR_RETURN(
      layer.correct_,
      build.kernels.Choose("altup_correct", AltUpCorrectTable(), desc));
  INLAY_ASSIGN_OR_RETURN(
      layer.add_, build.kernels.Choose("altup_add", AltUpAddTable(), desc));
  WeightLoader& weights = build.weights;
  const int64_t count = spec.count;
  INLAY_ASSIGN_OR_RETURN(
      layer.router_, weights.Floats(prefix + "modality_router.weight", count,
                                    hidden_size, VectorKind::kBias));
  INLAY_ASSIGN_OR_RETURN(layer.router_norm_,
                         weights.Vector(prefix + "router_norm.weight",
                                        hidden_size, VectorKind::kScale));
  INLAY_ASSIGN_OR_RETURN(
      layer.prediction_,
      weights.Floats(prefix + "prediction_coefs.weight", count * count, count,
                     VectorKind::kBias));
  INLAY_ASSIGN_OR_RETURN(layer.correction_,
                         weights.Floats(prefix + "correction_coefs.weight",
                                        count, count, VectorKind::kBias));
  if (!spec.scales) return layer;
  INLAY_ASSIGN_OR_RETURN(
      layer.scale_, weights.Vector(prefix + "correct_output_scale", hidden_size,
                                   VectorKind::kScale));
  return layer;
}

absl::Status AltUpLayer::Predict(const TensorView& streams, const TensorView& x,
                                 Stream& stream) const {
  AltUpPredictParams params;
  params.streams = streams;
  params.router = {router_, router_norm_, prediction_};
  params.x = x;
  return predict_.Run(params, stream);
}

absl::Status AltUpLayer::Correct(const TensorView& streams, const TensorView& x,
                                 Stream& stream) const {
  AltUpCorrectParams params;
  params.streams = streams;
  params.router = {router_, router_norm_, correction_};
  params.scale = scale_;
  params.x = x;
  return correct_.Run(params, stream);
}

absl::Status AltUpLayer::Add(const TensorView& y, const TensorView& streams,
                             Stream& stream) const {
  return add_.Run({y, streams}, stream);
}

absl::StatusOr<AltUpEnds> AltUpEnds::Create(const AltUpSpec& spec,
                                            int64_t hidden_size,
                                            ModelBuild& build) {
  AltUpEnds ends;
  ends.width_ = hidden_size;
  INLAY_ASSIGN_OR_RETURN(
      ends.copy_, Norm::Copy(hidden_size, DType::kF32, DType::kF32, build));
  INLAY_ASSIGN_OR_RETURN(ends.convert_, Norm::Copy(hidden_size, DType::kF32,
                                                   build.activation, build));
  for (const auto& [specs, layers] :
       {std::pair{&spec.projections, &ends.projections_},
        std::pair{&spec.unembeddings, &ends.unembeddings_}}) {
    for (const LinearSpec& linear : *specs) {
      INLAY_ASSIGN_OR_RETURN(
          layers->emplace_back(),
          Linear::Create(linear, LinearOutput::kFloat, build));
    }
  }
  const MatchMagnitudeDesc match = {hidden_size, spec.magnitude_epsilon};
  INLAY_ASSIGN_OR_RETURN(
      ends.match_,
      build.kernels.Choose("match_magnitude", MatchMagnitudeTable(), match));
  return ends;
}

size_t AltUpEnds::KernelBytes(int64_t tokens) const {
  size_t bytes = 0;
  for (const auto* layers : {&projections_, &unembeddings_}) {
    for (const Linear& layer : *layers) {
      bytes = std::max(bytes, layer.KernelBytes(tokens));
    }
  }
  return bytes;
}

absl::Status AltUpEnds::Begin(const TensorView& embeddings,
                              const TensorView& streams, const Scratch& scratch,
                              Stream& stream) const {
  INLAY_RETURN_IF_ERROR(
      copy_.Forward(embeddings, ColumnSlice(streams, 0, width_), stream));
  INLAY_RETURN_IF_ERROR(convert_.Forward(embeddings, scratch.x, stream));
  int64_t first = width_;
  for (const Linear& projection : projections_) {
    MatchMagnitudeParams match;
    match.x = match.y = ColumnSlice(streams, first, width_);
    match.target = embeddings;
    INLAY_RETURN_IF_ERROR(
        projection.Forward(scratch.x, {}, match.y, scratch.kernel, stream));
    INLAY_RETURN_IF_ERROR(match_.Run(match, stream));
    first += width_;
  }
  return absl::OkStatus();
}

absl::Status AltUpEnds::Merge(const TensorView& streams,
                              const TensorView& merged, const Scratch& scratch,
                              Stream& stream) const {
  MatchMagnitudeParams match;
  match.x = scratch.y;
  match.target = ColumnSlice(streams, 0, width_);
  match.y = merged;
  match.accumulate = true;
  INLAY_RETURN_IF_ERROR(copy_.Forward(match.target, merged, stream));
  int64_t first = width_;
  for (const Linear& unembedding : unembeddings_) {
    INLAY_RETURN_IF_ERROR(convert_.Forward(ColumnSlice(streams, first, width_),
                                           scratch.x, stream));
    INLAY_RETURN_IF_ERROR(
        unembedding.Forward(scratch.x, {}, scratch.y, scratch.kernel, stream));
    INLAY_RETURN_IF_ERROR(match_.Run(match, stream));
    first += width_;
  }
  return absl::OkStatus();
}

}  // namespace inlay
