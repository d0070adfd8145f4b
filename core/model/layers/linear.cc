#include "core/model/layers/linear.h"

#include <optional>
#include <string>
#include <string_view>

#include "core/model/layers/step.h"
#include "core/model/model.h"
#include "memory/status.h"

namespace inlay {
namespace {

// What a checkpoint may ask for that rounds its inputs.
constexpr std::string_view kFp8Row = "cuda_fp8";
constexpr std::string_view kInt8Row = "cuda_int8";

}  // namespace

absl::StatusOr<Linear> Linear::Choose(int64_t n, int64_t k, DType weight,
                                      bool permuted, InputCodes input_codes,
                                      LinearOutput output,
                                      const ModelBuild& build) {
  Linear linear;
  GemmDesc desc;
  desc.permuted = permuted;
  desc.n = n;
  desc.k = k;
  desc.weight = weight;
  desc.activation = build.activation;
  desc.batch_invariant = build.batch_invariant;
  desc.output = output == LinearOutput::kFloat ? DType::kF32 : build.activation;
  // Where the checkpoint asks for it and a row does it.
  if (input_codes != InputCodes::kNone && build.round_inputs &&
      !build.kernels.IsForced("gemm")) {
    const auto op = build.kernels.Choose("gemm", GemmTable(), desc,
                                         RoundingRow(input_codes));
    if (op.ok()) {
      linear.op_ = *op;
      linear.ChooseAlone(build);
      return linear;
    }
  }
  INLAY_ASSIGN_OR_RETURN(linear.op_,
                         build.kernels.Choose("gemm", GemmTable(), desc));
  linear.ChooseAlone(build);
  return linear;
}

absl::Status Linear::ChooseByValues(const std::string& name,
                                    const ModelBuild& build) {
  if (op_.desc.weight != DType::kF16) return absl::OkStatus();
  GemmDesc desc = op_.desc;
  desc.fits_bf16 = true;
  INLAY_ASSIGN_OR_RETURN(auto op,
                         build.kernels.Choose("gemm", GemmTable(), desc));
  // Read only where it matters.
  if (op.row == op_.row) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const bool fits, build.weights.FitsBf16(name));
  if (fits) op_ = std::move(op);
  return absl::OkStatus();
}

std::string_view Linear::RoundingRow(InputCodes codes) {
  switch (codes) {
    case InputCodes::kNone:
      return {};
    case InputCodes::kFp8:
      return kFp8Row;
    case InputCodes::kInt8:
      return kInt8Row;
  }
  return {};
}

bool Linear::IsRoundingRow(std::string_view row) {
  return row == kFp8Row || row == kInt8Row;
}

bool Linear::IsFusedRow(std::string_view row) {
  // The latter differ where they round.
  return row == kFusedGemmRow || IsRoundingRow(row);
}

bool Linear::may_fuse() const { return IsFusedRow(op_.row->name); }

bool Linear::may_chain() const {
  return may_fuse() || op_.row->name == kFloatRow;
}

void Linear::ChooseAlone(const ModelBuild& build) {
  if (!may_fuse() || !build.fused || build.kernels.IsForced("gemm")) return;
  LinearChainDesc desc;
  desc.stages.emplace_back().gemm = op_.desc;
  auto op = build.kernels.Choose("linear_chain", LinearChainTable(), desc);
  if (!op.ok()) return;
  alone_ = *std::move(op);
  alone_rows_ = LinearChainRows(alone_.desc, build.kernels.device());
}

bool Linear::RunsAlone(const TensorView& x, const TensorView& residual,
                       const TensorView& y) const {
  if (x.rows() == 0 || x.rows() > alone_rows_) return false;
  // Numbers of x are read two at a time.
  if (reinterpret_cast<uintptr_t>(x.data) % 4 != 0 ||
      x.row_stride_bytes % 4 != 0) {
    return false;
  }
  return residual.empty() ||
         (residual.data == y.data && y.dtype == DType::kF32 &&
          residual.row_stride_bytes == y.row_stride_bytes);
}

absl::Status Linear::RunAlone(const TensorView& x, const TensorView& residual,
                              const TensorView& y, Stream& stream) const {
  LinearChainDesc desc = alone_.desc;
  desc.stages[0].adds = !residual.empty();
  LinearChainParams params;
  params.x = x;
  LinearChainParams::Stage& stage = params.stages.emplace_back();
  stage.w = weight_;
  stage.bias = bias_;
  (residual.empty() ? stage.y : params.hidden) = y;
  return alone_.row->run(desc, params, stream);
}

WeightLoader::Packing LoaderPacking(const WeightPacking<GemmDesc>& packing,
                                    GemmDesc* desc) {
  WeightLoader::Packing loader;
  loader.bytes = packing.bytes(*desc);
  loader.group = packing.group;
  loader.pack = [pack = packing.pack, desc = *desc](
                    const std::byte* rows, int64_t first, int64_t count,
                    std::byte* packed) {
    pack(desc, rows, first, count, packed);
  };
  loader.pack_on_device = [pack = packing.pack_on_device, desc = *desc](
                              const std::byte* rows, int64_t first,
                              int64_t count, std::byte* packed,
                              Stream& stream) {
    return pack(desc, rows, first, count, packed, stream);
  };
  if (packing.inspect != nullptr) {
    loader.inspect = [inspect = packing.inspect, desc](const std::byte* packed,
                                                       Stream& stream) {
      return inspect(*desc, packed, stream);
    };
  }
  return loader;
}

absl::StatusOr<Linear> Linear::Over(const TensorView& weight,
                                    LinearOutput output, ModelBuild& build,
                                    const std::string& bias) {
  INLAY_ASSIGN_OR_RETURN(
      Linear linear, Choose(weight.rows(), weight.cols(), weight.dtype, false,
                            InputCodes::kNone, output, build));
  linear.weight_ = weight;
  if (linear.is_packed()) {
    INLAY_ASSIGN_OR_RETURN(
        linear.weight_,
        build.weights.Repacked(weight, linear.PackingForLoader()));
  }
  if (!bias.empty()) {
    INLAY_ASSIGN_OR_RETURN(
        linear.bias_,
        build.weights.Vector(bias, weight.rows(), VectorKind::kBias));
  }
  return linear;
}

absl::StatusOr<Linear> Linear::Create(const LinearSpec& spec,
                                      LinearOutput output, ModelBuild& build) {
  const std::string name = spec.name + std::string(spec.suffix);
  Linear linear;
  const bool permuted = build.weights.HasOrder(spec.name);
  // Quantised layers are never stored so.
  if (spec.transposed && !permuted) {
    INLAY_ASSIGN_OR_RETURN(const TensorView weight,
                           build.weights.Transposed(name, spec.n, spec.k));
    INLAY_ASSIGN_OR_RETURN(linear, Over(weight, output, build));
  } else {
    INLAY_ASSIGN_OR_RETURN(const DType dtype,
                           build.weights.MatrixDType(name, spec.n, spec.k));
    INLAY_ASSIGN_OR_RETURN(
        linear,
        Choose(spec.n, spec.k, dtype, permuted,
               build.weights.InputCodesOf({{name, spec.n}}), output, build));
    INLAY_RETURN_IF_ERROR(linear.ChooseByValues(name, build));
    if (permuted) {
      INLAY_ASSIGN_OR_RETURN(linear.permutation_,
                             build.weights.Orders({spec.name}, spec.k));
    }
    INLAY_ASSIGN_OR_RETURN(linear.weight_,
                           linear.is_packed()
                               ? build.weights.Packed({{name, spec.n}}, spec.k,
                                                      linear.PackingForLoader())
                               : build.weights.Matrix(name, spec.n, spec.k));
  }
  if (spec.bias) {
    INLAY_ASSIGN_OR_RETURN(
        linear.bias_,
        build.weights.Vector(spec.name + ".bias", spec.n, VectorKind::kBias));
  }
  linear.ObserveAs(spec.name, build);
  return linear;
}

void Linear::ObserveAs(const std::string& name, const ModelBuild& build) {
  if (build.input_observer == nullptr) return;
  observer_ = build.input_observer;
  name_ = name;
}

bool Linear::CanStack(absl::Span<const LinearSpec> specs,
                      const ModelBuild& build) {
  // Each layer's input has the observer's name for it.
  if (specs.size() < 2 || build.input_observer != nullptr) return false;
  std::vector<WeightLoader::Rows> weights;
  for (const LinearSpec& spec : specs) {
    weights.push_back({spec.name + std::string(spec.suffix), spec.n});
    if (spec.transposed || build.weights.HasOrder(spec.name)) {
      return false;
    }
  }
  return build.weights.SameDType(weights);
}

// One large matrix is read faster than several small ones, each launch (on CPU,
// each time that threads are woken) costs time, and what a kernel makes of its
// inputs it makes once.
absl::StatusOr<std::vector<Linear>> Linear::CreateSideBySide(
    absl::Span<const LinearSpec> specs, ModelBuild& build) {
  std::vector<Linear> layers;
  while (!specs.empty()) {
    size_t count = specs.size();
    for (; count > 1; --count) {
      if (!CanStack(specs.first(count), build)) continue;
      INLAY_ASSIGN_OR_RETURN(std::optional<Linear> stack,
                             Stack(specs.first(count), build));
      if (!stack.has_value()) continue;
      layers.push_back(*std::move(stack));
      break;
    }
    if (count == 1) {
      INLAY_ASSIGN_OR_RETURN(
          layers.emplace_back(),
          Create(specs.front(), LinearOutput::kActivation, build));
    }
    specs.remove_prefix(count);
  }
  return layers;
}

absl::StatusOr<std::optional<Linear>> Linear::Stack(
    absl::Span<const LinearSpec> specs, ModelBuild& build) {
  const int64_t k = specs.front().k;
  std::vector<WeightLoader::Rows> weights;
  std::vector<WeightLoader::Rows> biases;
  int64_t rows = 0;
  bool any_bias = false;
  for (const LinearSpec& spec : specs) {
    weights.push_back({spec.name + std::string(spec.suffix), spec.n});
    biases.push_back({spec.bias ? spec.name + ".bias" : "", spec.n});
    any_bias |= spec.bias;
    rows += spec.n;
  }
  INLAY_ASSIGN_OR_RETURN(
      const DType dtype,
      build.weights.MatrixDType(weights[0].name, weights[0].n, k));
  INLAY_ASSIGN_OR_RETURN(
      Linear linear,
      Choose(rows, k, dtype, false, build.weights.InputCodesOf(weights),
             LinearOutput::kActivation, build));
  if (linear.is_packed()) {
    const WeightLoader::Packing packing = linear.PackingForLoader();
    for (const LinearSpec& spec : specs.first(specs.size() - 1)) {
      if (spec.n % packing.group != 0) return std::nullopt;
    }
    INLAY_ASSIGN_OR_RETURN(linear.weight_,
                           build.weights.Packed(weights, k, packing));
  } else if (build.on_cpu()) {
    return std::nullopt;  // the files' own pages are used as they are
  } else {
    INLAY_ASSIGN_OR_RETURN(linear.weight_, build.weights.Stacked(weights, k));
  }
  if (any_bias) {
    INLAY_ASSIGN_OR_RETURN(
        linear.bias_, build.weights.StackedVector(biases, VectorKind::kBias));
  }
  return linear;
}

GemmParams Linear::Params(const TensorView& x, const TensorView& residual,
                          const TensorView& y) const {
  GemmParams params;
  params.x = x;
  params.w = weight_;
  params.bias = bias_;
  params.permutation = permutation_;
  params.residual = residual;
  params.y = y;
  return params;
}

absl::Status Linear::Forward(const TensorView& x, const TensorView& residual,
                             const TensorView& y, void* workspace,
                             Stream& stream) const {
  if (observer_ != nullptr) observer_->OnInput(name_, x);
  if (RunsAlone(x, residual, y)) return RunAlone(x, residual, y, stream);
  GemmParams params = Params(x, residual, y);
  params.workspace = workspace;
  return op_.Run(params, stream);
}

absl::Status Linear::ForwardRounded(const RoundedRows& x,
                                    const TensorView& residual,
                                    const TensorView& y, void* workspace,
                                    Stream& stream) const {
  GemmParams params = Params(x.codes, residual, y);
  params.x_scales = x.scales;
  params.workspace = workspace;
  return op_.Run(params, stream);
}

Op<RoundingDesc, RoundingParams> ChooseRoundedActivation(
    const ActivationDesc& activation, const ModelBuild& build) {
  if (!build.fused || build.on_cpu() || !activation.gated ||
      build.kernels.IsForced("activation")) {
    return {};
  }
  RoundingDesc desc;
  desc.source = RoundingSource::kActivation;
  desc.width = activation.width;
  desc.input = desc.activation = activation.activation;
  desc.function = activation.function;
  desc.limit = activation.limit;
  auto op = build.kernels.Choose("rounding", RoundingTable(), desc);
  return op.ok() ? *op : Op<RoundingDesc, RoundingParams>();
}

}  // namespace inlay
