#include "core/model/layers/expert_linear.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "core/model/expert_inputs.h"
#include "core/model/model.h"
#include "kernels/moe/expert_fetch.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The format of all matrices.
absl::StatusOr<DType> CommonDType(const ExpertLinear::Experts& experts,
                                  const ModelBuild& build) {
  std::optional<DType> common;
  for (const std::vector<LinearSpec>& layers : experts) {
    for (const LinearSpec& layer : layers) {
      const std::string name = layer.name + ".weight";
      INLAY_ASSIGN_OR_RETURN(const DType dtype,
                             build.weights.MatrixDType(name, layer.n, layer.k));
      if (common.value_or(dtype) != dtype) {
        return absl::UnimplementedError(FormattedString(
            "tensor \"%s\" is stored as %s and those of other experts as %s, "
            "allowed: one format for all experts of a layer",
            name, DTypeName(dtype), DTypeName(*common)));
      }
      common = dtype;
    }
  }
  return *common;
}

// What the checkpoint asks for of all of them.
InputCodes CommonInputCodes(const ExpertLinear::Experts& experts,
                            const ModelBuild& build) {
  std::vector<WeightLoader::Rows> parts;
  for (const std::vector<LinearSpec>& layers : experts) {
    for (const LinearSpec& layer : layers) {
      parts.push_back({layer.name + ".weight", layer.n});
    }
  }
  return build.weights.InputCodesOf(parts);
}

}  // namespace

absl::StatusOr<ExpertLinearDesc> ExpertLinear::Describe(
    const Experts& experts, const ModelBuild& build) {
  ExpertLinearDesc desc;
  desc.num_experts = static_cast<int>(experts.size());
  for (const LinearSpec& layer : experts.front()) desc.gemm.n += layer.n;
  desc.gemm.k = experts.front().front().k;
  INLAY_ASSIGN_OR_RETURN(desc.gemm.weight, CommonDType(experts, build));
  desc.gemm.activation = desc.gemm.output = build.activation;
  return desc;
}

absl::StatusOr<bool> ExpertLinear::CanStack(const Experts& experts,
                                            const ModelBuild& build) {
  for (const std::vector<LinearSpec>& layers : experts) {
    for (const LinearSpec& layer : layers) {
      INLAY_ASSIGN_OR_RETURN(
          const bool is_one,
          build.weights.HaveOneOrder(layers.front().name, layer.name));
      if (!is_one) return false;
    }
  }
  if (!build.on_cpu()) return true;
  // Each layer's input has the observer's name for it, and each matrix is lent
  // by its own.
  if (build.input_observer != nullptr || build.expert_lender != nullptr) {
    return false;
  }
  const auto desc = Describe(experts, build);
  if (!desc.ok()) return false;
  const auto op =
      build.kernels.Choose("expert_linear", ExpertLinearTable(), *desc);
  if (!op.ok()) return false;
  const WeightPacking<GemmDesc>* packing = ExpertPacking(*op->row, desc->gemm);
  if (packing == nullptr) return false;
  for (const LinearSpec& layer : experts.front()) {
    if (layer.n % packing->group != 0) return false;
  }
  return true;
}

absl::StatusOr<ExpertLinear> ExpertLinear::Create(
    const Experts& experts, int top_k, bool row_a_slot, LinearOutput output,
    ModelBuild& build, ExpertPlace place, const ActivationDesc* gate) {
  ExpertLinear linear;
  INLAY_ASSIGN_OR_RETURN(ExpertLinearDesc desc, Describe(experts, build));
  desc.top_k = top_k;
  desc.row_a_slot = row_a_slot;
  desc.gemm.output =
      output == LinearOutput::kFloat ? DType::kF32 : build.activation;
  desc.gemm.batch_invariant = build.batch_invariant;
  INLAY_RETURN_IF_ERROR(linear.LoadOrders(experts, desc, build));
  desc.row_a_slot |= linear.is_ordered();
  // As of dense layers, what rounds x takes no order.
  const InputCodes codes = linear.is_ordered()
                               ? InputCodes::kNone
                               : CommonInputCodes(experts, build);
  INLAY_RETURN_IF_ERROR(linear.Choose(desc, codes, gate, build));
  INLAY_RETURN_IF_ERROR(linear.Load(experts, place, build));
  INLAY_RETURN_IF_ERROR(linear.LoadBiases(experts, build));
  linear.ObserveAs(experts, build);
  return linear;
}

absl::Status ExpertLinear::LoadOrders(const Experts& experts,
                                      const ExpertLinearDesc& desc,
                                      ModelBuild& build) {
  std::vector<std::string> layers;
  bool any = false;
  for (const std::vector<LinearSpec>& own : experts) {
    layers.push_back(own.front().name);
    for (const LinearSpec& layer : own) {
      INLAY_ASSIGN_OR_RETURN(const bool is_one, build.weights.HaveOneOrder(
                                                    layers.back(), layer.name));
      if (is_one) continue;
      return absl::UnimplementedError(FormattedString(
          "tensor \"%s.weight\" has its inputs in another order (act order) "
          "than \"%s.weight\", allowed: one order where both are one matrix",
          layer.name, layers.back()));
    }
    any |= build.weights.HasOrder(layers.back());
  }
  if (!any) return absl::OkStatus();
  ExpertColumnsDesc columns;
  columns.width = desc.gemm.k;
  columns.num_experts = desc.num_experts;
  columns.top_k = desc.top_k;
  columns.row_a_slot = desc.row_a_slot;
  columns.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      columns_,
      build.kernels.Choose("expert_columns", ExpertColumnsTable(), columns));
  INLAY_ASSIGN_OR_RETURN(orders_, build.weights.Orders(layers, desc.gemm.k));
  // The others of each have the same.
  for (const std::vector<LinearSpec>& own : experts) {
    for (const LinearSpec& layer : own) build.weights.TakesOrder(layer.name);
  }
  return absl::OkStatus();
}

size_t ExpertLinear::OrderedBytes(int64_t tokens) const {
  if (!is_ordered()) return 0;
  constexpr size_t kAlignment = 256;
  const ExpertColumnsDesc& desc = columns_.desc;
  const size_t bytes =
      MatrixView(nullptr, desc.activation, tokens * desc.top_k, desc.width)
          .bytes();
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

absl::StatusOr<TensorView> ExpertLinear::Ordered(const TensorView& x,
                                                 const RoutingParams& routed,
                                                 int64_t slots, void* workspace,
                                                 Stream& stream) const {
  ExpertColumnsParams params;
  params.x = x;
  params.orders = orders_;
  params.experts = routed.experts;
  params.y = MatrixView(workspace, columns_.desc.activation, slots,
                        columns_.desc.width);
  INLAY_RETURN_IF_ERROR(columns_.Run(params, stream));
  return params.y;
}

absl::Status ExpertLinear::Choose(ExpertLinearDesc desc, InputCodes input_codes,
                                  const ActivationDesc* gate,
                                  const ModelBuild& build) {
  // Where the checkpoint asks for it and a row does it.
  const bool may_round =
      build.round_inputs && !build.kernels.IsForced("expert_linear");
  const auto choose = [&](const ExpertLinearDesc& wanted) {
    const std::string_view rounds =
        may_round ? Linear::RoundingRow(input_codes) : std::string_view();
    auto op = build.kernels.Choose("expert_linear", ExpertLinearTable(), wanted,
                                   rounds);
    if (op.ok() || rounds.empty()) return op;
    return build.kernels.Choose("expert_linear", ExpertLinearTable(), wanted);
  };
  const bool may_fuse =
      build.fused && !build.on_cpu() && !build.kernels.IsForced("activation");
  if (may_fuse && gate != nullptr && gate->gated) {
    ExpertLinearDesc gated = desc;
    gated.gated = true;
    gated.function = gate->function;
    gated.limit = gate->limit;
    auto op = choose(gated);
    if (op.ok()) {
      op_ = *std::move(op);
      return absl::OkStatus();
    }
  }
  INLAY_ASSIGN_OR_RETURN(op_, choose(desc));
  return absl::OkStatus();
}

absl::Status ExpertLinear::Load(const Experts& experts, ExpertPlace place,
                                ModelBuild& build) {
  auto bytes = build.on_cpu()                ? LoadApart(experts, build)
               : place == ExpertPlace::kHost ? LoadInHostMemory(experts, build)
                                             : LoadStacked(experts, build);
  INLAY_RETURN_IF_ERROR(bytes.status());
  expert_bytes_ = *bytes;
  const int idle = std::max(op_.desc.num_experts - op_.desc.top_k, 0);
  build.idle_bytes += expert_bytes_ * static_cast<uint64_t>(idle);
  return absl::OkStatus();
}

absl::StatusOr<size_t> ExpertLinear::LoadApart(const Experts& experts,
                                               ModelBuild& build) {
  GemmDesc& desc = op_.desc.gemm;
  const WeightPacking<GemmDesc>* packing = ExpertPacking(*op_.row, desc);
  for (const std::vector<LinearSpec>& layers : experts) {
    INLAY_DCHECK(layers.size() == 1 || packing != nullptr);
    const std::string name = layers.front().name + ".weight";
    const WeightInfo* info = build.weights.InfoOf(name);
    const bool is_lent = packing == nullptr && info != nullptr &&
                         build.expert_lender != nullptr &&
                         build.expert_lender->Lends(*info);
    if (is_lent) {
      // Its shape and format were checked when the kernel was chosen.
      lender_ = build.expert_lender;
      lent_.resize(experts.size());
      lent_[each_.size()] = info;
      each_.push_back(nullptr);
      continue;
    }
    std::vector<WeightLoader::Rows> parts;
    for (const LinearSpec& layer : layers) {
      parts.push_back({layer.name + ".weight", layer.n});
    }
    INLAY_ASSIGN_OR_RETURN(
        const TensorView matrix,
        packing == nullptr
            ? build.weights.Matrix(name, desc.n, desc.k)
            : build.weights.Packed(parts, desc.k,
                                   LoaderPacking(*packing, &desc)));
    each_.push_back(matrix.data);
  }
  return packing == nullptr
             ? MatrixView(nullptr, desc.weight, desc.n, desc.k).bytes()
             : packing->bytes(desc);
}

absl::StatusOr<std::vector<std::vector<WeightLoader::Rows>>>
ExpertLinear::Parts(const Experts& experts, const ModelBuild& build) const {
  const GemmDesc& one = op_.desc.gemm;
  const WeightPacking<GemmDesc>* packing = ExpertPacking(*op_.row, one);
  const int64_t group = packing == nullptr ? 1 : packing->group;
  std::vector<std::vector<WeightLoader::Rows>> matrices;
  for (const std::vector<LinearSpec>& layers : experts) {
    std::vector<WeightLoader::Rows>& parts = matrices.emplace_back();
    for (const LinearSpec& layer : layers) {
      parts.push_back({layer.name + ".weight", layer.n});
      if (layer.n % group == 0) continue;
      return absl::UnimplementedError(FormattedString(
          "tensor \"%s\" has %d rows of %s, allowed for experts on %s: a "
          "multiple of %d",
          parts.back().name, layer.n, DTypeName(one.weight),
          build.kernels.device().name, group));
    }
  }
  return matrices;
}

absl::StatusOr<size_t> ExpertLinear::LoadInHostMemory(const Experts& experts,
                                                      ModelBuild& build) {
  GemmDesc& one = op_.desc.gemm;
  INLAY_ASSIGN_OR_RETURN(const auto matrices, Parts(experts, build));
  const WeightPacking<GemmDesc>* packing = ExpertPacking(*op_.row, one);
  stacked_.stride_bytes =
      packing == nullptr ? MatrixView(nullptr, one.weight, one.n, one.k).bytes()
                         : packing->bytes(one);
  const size_t pitch = (stacked_.stride_bytes + kExpertAlignment - 1) /
                       kExpertAlignment * kExpertAlignment;
  WeightLoader::Packing loader;
  GemmDesc last = one;
  std::optional<ScaleReach> least;
  if (packing != nullptr) {
    loader = LoaderPacking(*packing, &last);
    if (loader.inspect != nullptr) {
      loader.inspect = [&, inspect = loader.inspect](const std::byte* packed,
                                                     Stream& stream) {
        INLAY_RETURN_IF_ERROR(inspect(packed, stream));
        least = std::min(least.value_or(last.scale_reach), last.scale_reach);
        return absl::OkStatus();
      };
    }
  }
  INLAY_ASSIGN_OR_RETURN(
      host_,
      build.weights.InHostMemory(
          matrices, one.k, packing == nullptr ? nullptr : &loader, pitch));
  one.scale_reach = least.value_or(one.scale_reach);
  return stacked_.stride_bytes;
}

absl::StatusOr<size_t> ExpertLinear::LoadStacked(const Experts& experts,
                                                 ModelBuild& build) {
  GemmDesc& one = op_.desc.gemm;
  const WeightPacking<GemmDesc>* packing = ExpertPacking(*op_.row, one);
  INLAY_ASSIGN_OR_RETURN(const auto matrices, Parts(experts, build));
  std::vector<WeightLoader::Rows> parts;
  for (const auto& matrix : matrices) {
    parts.insert(parts.end(), matrix.begin(), matrix.end());
  }
  // Packed rows lie one group after another, so one matrix is all experts'.
  GemmDesc all = one;
  all.n *= op_.desc.num_experts;
  INLAY_ASSIGN_OR_RETURN(
      const TensorView stack,
      packing == nullptr
          ? build.weights.Stacked(parts, one.k)
          : build.weights.Packed(parts, one.k, LoaderPacking(*packing, &all)));
  one.scale_reach = all.scale_reach;
  stacked_.base = stack.data;
  stacked_.stride_bytes =
      (packing == nullptr ? stack.bytes() : packing->bytes(all)) /
      static_cast<size_t>(op_.desc.num_experts);
  return stacked_.stride_bytes;
}

absl::Status ExpertLinear::LoadBiases(const Experts& experts,
                                      ModelBuild& build) {
  if (!experts.front().front().bias) return absl::OkStatus();
  std::vector<WeightLoader::Rows> parts;
  for (const std::vector<LinearSpec>& layers : experts) {
    for (const LinearSpec& layer : layers) {
      parts.push_back({layer.name + ".bias", layer.n});
    }
  }
  INLAY_ASSIGN_OR_RETURN(bias_,
                         build.weights.StackedVector(parts, VectorKind::kBias));
  return absl::OkStatus();
}

void ExpertLinear::ObserveAs(const Experts& experts, const ModelBuild& build) {
  if (build.input_observer == nullptr) return;
  observer_ = build.input_observer;
  for (const std::vector<LinearSpec>& layers : experts) {
    names_.push_back(layers.front().name);
  }
}

// On CPU; takes memory, which calibration may.
void ExpertLinear::Observe(const TensorView& x,
                           const RoutingParams& routed) const {
  observer_->OnInput(names_.front() + std::string(kAllExperts), x);
  const int64_t k = x.cols();
  const bool row_a_slot =
      is_ordered() ? columns_.desc.row_a_slot : op_.desc.row_a_slot;
  const int slots_a_row = row_a_slot ? 1 : op_.desc.top_k;
  std::vector<float> rows;
  for (size_t expert = 0; expert < names_.size(); ++expert) {
    const int32_t first = routed.offsets[expert];
    const int32_t count = routed.offsets[expert + 1] - first;
    if (count == 0) continue;
    rows.resize(static_cast<size_t>(count * k));
    for (int32_t i = 0; i < count; ++i) {
      const float* row =
          x.row<const float>(routed.slots[first + i] / slots_a_row);
      std::copy(row, row + k, rows.data() + i * k);
    }
    observer_->OnInput(names_[expert],
                       MatrixView(rows.data(), DType::kF32, count, k));
  }
}

ExpertLinearParams ExpertLinear::Params(const TensorView& x,
                                        const RoutingParams& routed,
                                        const TensorView& y,
                                        void* workspace) const {
  ExpertLinearParams params;
  params.x = x;
  params.w = stacked_;
  params.w.each = each_.empty() ? nullptr : each_.data();
  params.bias = bias_;
  params.experts = routed.experts;
  params.offsets = routed.offsets;
  params.slots = routed.slots;
  params.y = y;
  params.workspace = workspace;
  return params;
}

absl::Status ExpertLinear::Forward(const TensorView& x,
                                   const RoutingParams& routed,
                                   const TensorView& y, void* workspace,
                                   Stream& stream, bool activates) const {
  if (observer_ != nullptr) Observe(x, routed);
  ExpertLinearParams params = Params(x, routed, y, workspace);
  if (is_ordered()) {
    INLAY_ASSIGN_OR_RETURN(params.x,
                           Ordered(x, routed, y.rows(), workspace, stream));
    params.workspace = static_cast<std::byte*>(workspace) +
                       OrderedBytes(y.rows() / op_.desc.top_k);
  }
  if (lender_ != nullptr) return ForwardLent(params, stream);
  if (activates || !gated()) return op_.Run(params, stream);
  ExpertLinearDesc plain = op_.desc;
  plain.gated = false;
  return op_.row->run(plain, params, stream);
}

absl::Status ExpertLinear::ForwardRounded(const RoundedRows& x,
                                          const RoutingParams& routed,
                                          const TensorView& y, void* workspace,
                                          Stream& stream) const {
  ExpertLinearParams params = Params(x.codes, routed, y, workspace);
  params.x_scales = x.scales;
  return op_.Run(params, stream);
}

// A row of y depends on its own row of x and its expert only: a call with the
// rows of one expert gives them the bits that a call with all does.
absl::Status ExpertLinear::ForwardLent(ExpertLinearParams params,
                                       Stream& stream) const {
  const int32_t* all = params.offsets;
  std::vector<const std::byte*> each = each_;
  std::vector<int32_t> offsets(each.size() + 1);
  params.w.each = each.data();
  params.offsets = offsets.data();
  for (size_t expert = 0; expert < each.size(); ++expert) {
    if (all[expert] == all[expert + 1]) continue;
    if (lent_[expert] != nullptr) {
      INLAY_ASSIGN_OR_RETURN(each[expert],
                             lender_->Lend(*lent_[expert], stream));
    }
    const auto behind = offsets.begin() + static_cast<int64_t>(expert) + 1;
    std::fill(offsets.begin(), behind, all[expert]);
    std::fill(behind, offsets.end(), all[expert + 1]);
    INLAY_RETURN_IF_ERROR(op_.Run(params, stream));
  }
  return absl::OkStatus();
}

}  // namespace inlay
