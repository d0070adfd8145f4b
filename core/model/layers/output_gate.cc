#include "core/model/layers/output_gate.h"

#include "memory/status.h"

namespace inlay {

absl::StatusOr<OutputGate> OutputGate::Create(const AttentionSpec& spec,
                                              ModelBuild& build) {
  OutputGate gate;
  const int64_t width = int64_t{spec.num_heads} * spec.head_dim;
  if (spec.gated) {
    INLAY_DCHECK(!spec.head_gates || spec.gate_apart);
    gate.is_apart_ = spec.gate_apart;
    gate.width_ = spec.head_gates ? spec.num_heads : width;
    const int32_t runs = spec.gate_apart ? 1 : spec.num_heads;
    const auto q = static_cast<int32_t>(width) / runs;
    const auto of_gates = static_cast<int32_t>(gate.width_) / runs;
    for (int32_t i = 0; i < runs; ++i) {
      gate.q_runs_.push_back({i * (q + of_gates), q});
      gate.gate_runs_.push_back({i * (q + of_gates) + q, of_gates});
    }
    gate.order_ = gate.q_runs_;
    gate.order_.push_back(
        {runs * (q + of_gates), 2 * spec.num_kv_heads * spec.head_dim});
    gate.order_.insert(gate.order_.end(), gate.gate_runs_.begin(),
                       gate.gate_runs_.end());
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
  params.runs = q_runs_;
  params.y = q;
  INLAY_RETURN_IF_ERROR(columns_.Run(params, stream));
  params.runs = gate_runs_;
  params.y = gate;
  return columns_.Run(params, stream);
}

absl::Status OutputGate::Order(const TensorView& raw, const TensorView& ordered,
                               Stream& stream) const {
  ColumnsParams params;
  params.x = raw;
  params.runs = order_;
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
