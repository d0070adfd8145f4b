#include "core/model/layers/hyper_connection.h"

#include "memory/status.h"

namespace inlay {

absl::StatusOr<HyperConnection> HyperConnection::Create(const StreamsSpec& spec,
                                                        const std::string& name,
                                                        int64_t hidden_size,
                                                        bool only_mixes,
                                                        ModelBuild& build) {
  HyperConnection hyper;
  HyperMixDesc mix;
  mix.num_streams = spec.count;
  mix.width = hidden_size;
  mix.rounds = spec.rounds;
  mix.epsilon = spec.epsilon;
  mix.norm_epsilon = spec.norm_epsilon;
  mix.magnitude = spec.magnitude;
  mix.independent = spec.independent;
  mix.only_mixes = only_mixes;
  mix.averages = only_mixes && name.empty();
  INLAY_RETURN_IF_ERROR(ValidateHyperMix(mix));
  INLAY_ASSIGN_OR_RETURN(
      hyper.mix_, build.kernels.Choose("hyper_mix", HyperMixTable(), mix));
  HyperSpreadDesc spread;
  spread.num_streams = spec.count;
  spread.width = hidden_size;
  spread.independent = spec.independent;
  INLAY_ASSIGN_OR_RETURN(
      hyper.spread_,
      build.kernels.Choose("hyper_spread", HyperSpreadTable(), spread));
  if (mix.averages) return hyper;
  GemmDesc product;
  product.n = mix.num_outputs();
  product.k = spec.count * hidden_size;
  product.batch_invariant = build.batch_invariant;
  INLAY_ASSIGN_OR_RETURN(hyper.product_,
                         build.kernels.Choose("gemm", GemmTable(), product));
  INLAY_ASSIGN_OR_RETURN(
      hyper.fn_, build.weights.Floats(name + "_fn", product.n, product.k,
                                      VectorKind::kBias));
  INLAY_ASSIGN_OR_RETURN(
      hyper.base_,
      build.weights.Vector(name + "_base", product.n, VectorKind::kBias));
  const int64_t num_scales = only_mixes ? 1 : spec.independent ? 2 : 3;
  INLAY_ASSIGN_OR_RETURN(
      hyper.scale_,
      build.weights.Vector(name + "_scale", num_scales, VectorKind::kScale));
  return hyper;
}

HyperConnection::Scratch HyperConnection::Place(Arena& arena,
                                                int64_t tokens) const {
  // What blocks have is the most.
  HyperMixDesc most = mix_.desc;
  most.only_mixes = most.averages = false;
  const auto take = [&](int floats) {
    return reinterpret_cast<float*>(
        arena.Take(static_cast<size_t>(tokens * floats) * sizeof(float)));
  };
  Scratch scratch;
  scratch.products = take(most.num_outputs());
  scratch.weights = take(most.num_weights());
  return scratch;
}

absl::Status HyperConnection::Mix(const TensorView& streams,
                                  const TensorView& x, const Scratch& scratch,
                                  const Step& step) const {
  HyperMixParams mix;
  mix.streams = streams;
  if (!mix_.desc.averages) {
    const GemmDesc& desc = product_.desc;
    GemmParams product;
    product.x = streams;
    product.w =
        MatrixView(const_cast<float*>(fn_), DType::kF32, desc.n, desc.k);
    product.y = MatrixView(scratch.products, DType::kF32, x.rows(), desc.n);
    product.workspace = step.kernel_workspace;
    INLAY_RETURN_IF_ERROR(product_.Run(product, step.stream));
    mix.products = product.y;
  }
  mix.base = base_;
  mix.scale = scale_;
  mix.x = x;
  mix.weights = scratch.weights;
  return mix_.Run(mix, step.stream);
}

absl::Status HyperConnection::Spread(const TensorView& y,
                                     const TensorView& streams,
                                     const Scratch& scratch,
                                     const Step& step) const {
  HyperSpreadParams spread;
  spread.y = y;
  spread.weights = scratch.weights;
  spread.streams = streams;
  return spread_.Run(spread, step.stream);
}

}  // namespace inlay
