#include "core/model/layers/mlp.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "memory/status.h"

namespace inlay {
namespace {

// log(1 + e^x).
double Softplus(double x) {
  return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Sublayer>> Mlp::Create(const MlpSpec& spec,
                                                      const Norm& norm,
                                                      ModelBuild& build) {
  auto mlp = std::make_unique<Mlp>();
  mlp->inner_columns_ = spec.gated ? 2 * spec.width : spec.width;
  ActivationDesc desc;
  desc.function = spec.activation;
  desc.gated = spec.gated;
  desc.width = spec.width;
  desc.limit = spec.limit;
  desc.activation = build.activation;
  // Whether the activation reads what the layers give.
  const bool reads = spec.gate_scale == 1.0f && !spec.gate_cut.has_value() &&
                     spec.gate_channels.name.empty();
  INLAY_ASSIGN_OR_RETURN(
      mlp->input_,
      InputLinear::Create(spec.input, norm, reads ? &desc : nullptr, build));
  INLAY_ASSIGN_OR_RETURN(
      mlp->output_, Linear::Create(spec.output, LinearOutput::kFloat, build));
  INLAY_ASSIGN_OR_RETURN(
      mlp->activation_,
      build.kernels.Choose("activation", ActivationTable(), desc));
  if (spec.xielu.has_value()) {
    INLAY_RETURN_IF_ERROR(mlp->ChooseXielu(*spec.xielu, build));
  }
  if (spec.gate_cut.has_value()) {
    const SparseGateDesc cut = {spec.width, build.activation};
    INLAY_ASSIGN_OR_RETURN(
        mlp->sparse_gate_,
        build.kernels.Choose("sparse_gate", SparseGateTable(), cut));
    mlp->gate_cut_ = *spec.gate_cut;
  }
  INLAY_DCHECK(spec.gate_channels.name.empty() ==
               spec.up_channels.name.empty());
  INLAY_ASSIGN_OR_RETURN(
      mlp->gate_channels_,
      Norm::Channels(spec.gate_channels, spec.width, build.activation, build));
  INLAY_ASSIGN_OR_RETURN(
      mlp->up_channels_,
      Norm::Channels(spec.up_channels, spec.width, build.activation, build));
  mlp->gate_scale_ = spec.gate_scale;
  mlp->inner_scale_ = spec.inner_scale;
  if (spec.gate_scale != 1.0f || spec.inner_scale != 1.0f) {
    ElementwiseDesc scale;
    scale.function = Elementwise::kScale;
    scale.width = spec.width;
    scale.activation = build.activation;
    INLAY_ASSIGN_OR_RETURN(
        mlp->scale_,
        build.kernels.Choose("elementwise", ElementwiseTable(), scale));
  }
  INLAY_ASSIGN_OR_RETURN(
      mlp->inner_norm_,
      Norm::Create(spec.inner_norm, spec.width, build.activation,
                   build.activation, build));
  if (mlp->inner_scale_ == 1.0f && !mlp->inner_norm_.present()) {
    mlp->rounded_ = ChooseRoundedActivation(mlp->activation_.desc, build);
  }
  return std::unique_ptr<Sublayer>(std::move(mlp));
}

absl::Status Mlp::ChooseXielu(const XieluSpec& spec, ModelBuild& build) {
  XieluNumbers stored = spec.stored;
  if (!spec.name.empty()) {
    for (const auto& [part, number] :
         {std::pair{".alpha_p", &stored.alpha_p},
          std::pair{".alpha_n", &stored.alpha_n},
          std::pair{".beta", &stored.beta}, std::pair{".eps", &stored.eps}}) {
      INLAY_ASSIGN_OR_RETURN(*number, build.weights.Scalar(spec.name + part));
    }
  }
  numbers_ = stored;
  numbers_.alpha_p = static_cast<float>(Softplus(stored.alpha_p));
  numbers_.alpha_n = static_cast<float>(stored.beta + Softplus(stored.alpha_n));
  const XieluDesc desc = {activation_.desc.width, activation_.desc.activation};
  INLAY_ASSIGN_OR_RETURN(xielu_,
                         build.kernels.Choose("xielu", XieluTable(), desc));
  return absl::OkStatus();
}

absl::Status Mlp::Activate(const ActivationParams& params,
                           Stream& stream) const {
  if (xielu_.row == nullptr) return activation_.Run(params, stream);
  return xielu_.Run({params.x, params.y, numbers_}, stream);
}

int64_t Mlp::ScaleCount(int64_t rows) const {
  return rounded_.row == nullptr
             ? 0
             : std::max(RoundingScales(RowRounding::kFp8Groups, rows,
                                       rounded_.desc.width),
                        rows);
}

absl::Status Mlp::Scale(const TensorView& y, float factor,
                        Stream& stream) const {
  if (factor == 1.0f) return absl::OkStatus();
  ElementwiseParams params;
  params.y = y;
  params.value = factor;
  return scale_.Run(params, stream);
}

absl::Status Mlp::ScaleChannels(const TensorView& gate, const TensorView& up,
                                Stream& stream) const {
  if (!gate_channels_.present()) return absl::OkStatus();
  INLAY_RETURN_IF_ERROR(gate_channels_.Forward(gate, gate, stream));
  return up_channels_.Forward(up, up, stream);
}

absl::Status Mlp::CutGate(const TensorView& gate, Stream& stream) const {
  if (sparse_gate_.row == nullptr) return absl::OkStatus();
  return sparse_gate_.Run({gate, gate_cut_}, stream);
}

// Where it is down(act(gate(x)) * up(x)) over one matrix.
bool Mlp::Describe(LinearChainDesc* desc) const {
  const bool is_plain = activation_.desc.gated && gate_scale_ == 1.0f &&
                        !gate_channels_.present() && inner_scale_ == 1.0f &&
                        !inner_norm_.present() && sparse_gate_.row == nullptr;
  if (!is_plain || !input_.is_one() || !input_.layer().may_chain() ||
      !output_.may_chain()) {
    return false;
  }
  LinearChainStage& stage = AddStage(input_.layer(), desc);
  stage.normalised = true;
  stage.gated = true;
  stage.function = activation_.desc.function;
  stage.limit = activation_.desc.limit;
  AddStage(output_, desc).adds = true;
  return true;
}

void Mlp::Fill(const Step& step, int64_t tokens, const Norm& norm,
               LinearChainParams* params) const {
  Arena arena(step.scratch);
  const TensorView inner =
      arena.TakeMatrix(tokens, inner_columns_, activation_.desc.activation);
  SetNorm(norm,
          &AddStage(input_.layer(),
                    ColumnSlice(inner, 0, activation_.desc.width), params));
  AddStage(output_, {}, params);
}

size_t Mlp::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  arena.TakeMatrix(tokens, inner_columns_, activation_.desc.activation);
  arena.TakeMatrix(1, ScaleCount(tokens), DType::kF32);
  return arena.used();
}

size_t Mlp::KernelBytes(int64_t tokens, int64_t) const {
  return std::max(output_.KernelBytes(tokens), input_.KernelBytes(tokens));
}

absl::Status Mlp::Forward(const Step& step, const BlockInput& x,
                          const TensorView& residual,
                          const TensorView& y) const {
  Arena arena(step.scratch);
  const int64_t rows = x.hidden.rows();
  const TensorView inner =
      arena.TakeMatrix(rows, inner_columns_, activation_.desc.activation);
  ActivationParams params;
  params.x = inner;
  params.y = ColumnSlice(inner, 0, activation_.desc.width);
  if (input_.Activates(rows)) {
    INLAY_RETURN_IF_ERROR(input_.Forward(step, x, {params.y}));
  } else {
    const TensorView up = ColumnSlice(inner, activation_.desc.width,
                                      inner_columns_ - activation_.desc.width);
    const bool apart = !input_.is_one();
    INLAY_RETURN_IF_ERROR(
        input_.Forward(step, x, {apart ? params.y : inner, up}));
    INLAY_RETURN_IF_ERROR(Scale(params.y, gate_scale_, step.stream));
    INLAY_RETURN_IF_ERROR(ScaleChannels(params.y, up, step.stream));
    INLAY_RETURN_IF_ERROR(CutGate(params.y, step.stream));
    const RowRounding rounding =
        rounded_.row == nullptr ? RowRounding::kNone : output_.RoundingOf(rows);
    if (rounding != RowRounding::kNone) {
      RoundingParams round;
      round.rounding = rounding;
      round.x = inner;
      round.codes = inner;
      round.codes.dtype = RoundingDType(rounding);
      round.codes.dims[1] = activation_.desc.width;
      round.scales =
          arena.TakeMatrix(1, ScaleCount(rows), DType::kF32).row<float>(0);
      INLAY_RETURN_IF_ERROR(rounded_.Run(round, step.stream));
      return output_.ForwardRounded({round.codes, round.scales}, residual, y,
                                    step.kernel_workspace, step.stream);
    }
    INLAY_RETURN_IF_ERROR(Activate(params, step.stream));
  }
  INLAY_RETURN_IF_ERROR(Scale(params.y, inner_scale_, step.stream));
  if (inner_norm_.present()) {
    INLAY_RETURN_IF_ERROR(inner_norm_.Forward(params.y, params.y, step.stream));
  }
  return output_.Forward(params.y, residual, y, step.kernel_workspace,
                         step.stream);
}

}  // namespace inlay
