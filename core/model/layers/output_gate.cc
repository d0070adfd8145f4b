#include "core/model/layers/output_gate.h"

#include <utility>

#include "memory/status.h"

namespace inlay {
namespace {

void Fill(GateRuns& runs) {
  const int32_t both = runs.q_width + runs.gate_width;
  for (int32_t i = 0; i < runs.runs; ++i) {
    runs.q.push_back({i * both, runs.q_width});
    runs.gate.push_back({i * both + runs.q_width, runs.gate_width});
  }
  runs.order = runs.q;
  runs.order.push_back({runs.runs * both, runs.kv_width});
  runs.order.insert(runs.order.end(), runs.gate.begin(), runs.gate.end());
}

std::shared_ptr<const GateRuns> SharedRuns(GateRuns shape, ModelBuild& build) {
  for (const auto& runs : build.gate_runs) {
    if (runs->runs == shape.runs && runs->q_width == shape.q_width &&
        runs->gate_width == shape.gate_width &&
        runs->kv_width == shape.kv_width) {
      return runs;
    }
  }
  Fill(shape);
  return build.gate_runs.emplace_back(
      std::make_shared<const GateRuns>(std::move(shape)));
}

}  // namespace

absl::StatusOr<OutputGate> OutputGate::Create(const AttentionSpec& spec,
                                              ModelBuild& build) {
  OutputGate gate;
  const int64_t width = int64_t{spec.num_heads} * spec.head_dim;
  if (spec.gated) {
    INLAY_DCHECK(!spec.head_gates || spec.gate_apart);
    gate.is_apart_ = spec.gate_apart;
    gate.width_ = spec.head_gates ? spec.num_heads : width;
    GateRuns shape;
    shape.runs = spec.gate_apart ? 1 : spec.num_heads;
    shape.q_width = static_cast<int32_t>(width) / shape.runs;
    shape.gate_width = static_cast<int32_t>(gate.width_) / shape.runs;
    shape.kv_width = 2 * spec.num_kv_heads * spec.head_dim;
    gate.runs_ = SharedRuns(std::move(shape), build);
    INLAY_ASSIGN_OR_RETURN(gate.columns_,
                           build.kernels.Choose("columns", ColumnsTable(),
                                                ColumnsDesc{build.activation}));
    GatedNormDesc desc;
    desc.width = spec.head_gates ? spec.head_dim : width;
    desc.groups = spec.head_gates ? spec.num_heads : 1;
    desc.group_gates = spec.head_gates;
    desc.normalise = false;
    desc.gate = spec.gate;
    desc.activation = build.activation;
    INLAY_ASSIGN_OR_RETURN(
        gate.gate_, build.kernels.Choose("gated_norm", GatedNormTable(), desc));
  }
  gate.scale_ = spec.context_scale;
  if (gate.scale_ != 1.0f) {
    ElementwiseDesc desc;
    desc.function = Elementwise::kScale;
    desc.width = width;
    desc.activation = build.activation;
    INLAY_ASSIGN_OR_RETURN(
        gate.multiply_,
        build.kernels.Choose("elementwise", ElementwiseTable(), desc));
  }
  return gate;
}

absl::Status OutputGate::Split(const TensorView& both, const TensorView& q,
                               const TensorView& gate, Stream& stream) const {
  ColumnsParams params;
  params.x = both;
  params.runs = runs_->q;
  params.y = q;
  INLAY_RETURN_IF_ERROR(columns_.Run(params, stream));
  params.runs = runs_->gate;
  params.y = gate;
  return columns_.Run(params, stream);
}

absl::Status OutputGate::Order(const TensorView& raw, const TensorView& ordered,
                               Stream& stream) const {
  ColumnsParams params;
  params.x = raw;
  params.runs = runs_->order;
  params.y = ordered;
  return columns_.Run(params, stream);
}

absl::Status OutputGate::Apply(const TensorView& context,
                               const TensorView& gate, Stream& stream) const {
  if (splits()) {
    GatedNormParams params;
    params.x = params.y = context;
    params.z = gate;
    INLAY_RETURN_IF_ERROR(gate_.Run(params, stream));
  }
  if (scale_ == 1.0f) return absl::OkStatus();
  ElementwiseParams params;
  params.y = context;
  params.value = scale_;
  return multiply_.Run(params, stream);
}

}  // namespace inlay
