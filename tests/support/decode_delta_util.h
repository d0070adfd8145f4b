// What tests and measurements of decode_delta share: descriptions, and the ops
// apart that it stands for. Header only.
#ifndef INLAY_TESTS_SUPPORT_DECODE_DELTA_UTIL_H_
#define INLAY_TESTS_SUPPORT_DECODE_DELTA_UTIL_H_

#include "kernels/linear_attention/decode_delta.h"
#include "memory/status.h"

namespace inlay::testing {

struct DeltaShape {
  int num_heads;
  int num_key_heads;
  int key_dim;
  int value_dim;
  bool decays_channels;
  DType type;
  GateFunction gate = GateFunction::kSilu;
  float bound = 0.0f;  // of decays

  int64_t keys() const { return int64_t{num_key_heads} * key_dim; }
  int64_t values() const { return int64_t{num_heads} * value_dim; }
  int64_t channels() const { return 2 * keys() + values(); }
  int64_t decays() const {
    return int64_t{num_heads} * (decays_channels ? key_dim : 1);
  }
};

inline DecodeDeltaDesc DecodeDeltaDescOf(const DeltaShape& shape) {
  DecodeDeltaDesc desc;
  desc.conv = {shape.channels(), 4, true, shape.type};
  desc.unit.groups = int64_t{2} * shape.num_key_heads;
  desc.unit.width = shape.key_dim;
  desc.unit.gate = GateFunction::kNone;
  desc.unit.activation = shape.type;
  desc.gates.num_heads = shape.num_heads;
  desc.gates.channels = shape.decays() / shape.num_heads;
  desc.gates.activation = shape.type;
  desc.gates.bound = shape.bound;
  desc.rule.num_heads = shape.num_heads;
  desc.rule.num_key_heads = shape.num_key_heads;
  desc.rule.key_dim = shape.key_dim;
  desc.rule.value_dim = shape.value_dim;
  desc.rule.decay =
      shape.decays_channels ? StateDecay::kChannel : StateDecay::kHead;
  desc.rule.delta = true;
  desc.rule.activation = shape.type;
  desc.rule.batch_invariant = true;  // token by token
  desc.norm.groups = shape.num_heads;
  desc.norm.width = shape.value_dim;
  desc.norm.gate = shape.gate;
  desc.norm.shared_weight = true;
  desc.norm.activation = shape.type;
  return desc;
}

// The five launches. `mixed`: [tokens, channels]; decay and beta as state_gates
// writes them.
inline absl::Status RunDeltaApart(const DecodeDeltaDesc& desc,
                                  const DecodeDeltaParams& params,
                                  const TensorView& mixed,
                                  const TensorView& decay,
                                  const TensorView& beta,
                                  const DeviceInfo& device, Stream& stream) {
  const auto run = [&](auto table, const auto& op_desc,
                       const auto& op_params) -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const auto* row,
                           Select("op", table, op_desc, device));
    return row->run(op_desc, op_params, stream);
  };
  const auto columns = [&](int64_t first, int64_t count) {
    TensorView view = mixed;
    view.data += RowBytes(mixed.dtype, static_cast<size_t>(first));
    view.dims[1] = count;
    return view;
  };
  ShortConvParams conv;
  conv.x = params.x;
  conv.taps = params.taps;
  conv.state = params.conv_state;
  conv.y = mixed;
  INLAY_RETURN_IF_ERROR(run(ShortConvTable(), desc.conv, conv));
  const int64_t keys = int64_t{desc.rule.num_key_heads} * desc.rule.key_dim;
  GatedNormParams unit;
  unit.x = unit.y = columns(0, 2 * keys);
  unit.weight = params.lengths;
  unit.epsilon = params.length_epsilon;
  INLAY_RETURN_IF_ERROR(run(GatedNormTable(), desc.unit, unit));
  StateGatesParams gates;
  gates.x = params.a;
  gates.b = params.b;
  gates.bias = params.bias;
  gates.a_log = params.a_log;
  gates.decay = decay;
  gates.beta = beta;
  INLAY_RETURN_IF_ERROR(run(StateGatesTable(), desc.gates, gates));
  LinearAttentionParams rule;
  rule.q = columns(0, keys);
  rule.k = columns(keys, keys);
  rule.v = rule.y = columns(2 * keys, params.y.cols());
  rule.decay = decay;
  rule.beta = beta;
  rule.state = params.state;
  INLAY_RETURN_IF_ERROR(run(LinearAttentionTable(), desc.rule, rule));
  GatedNormParams norm;
  norm.x = rule.y;
  norm.y = params.y;
  norm.z = params.z;
  norm.weight = params.norm;
  norm.epsilon = params.norm_epsilon;
  return run(GatedNormTable(), desc.norm, norm);
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_DECODE_DELTA_UTIL_H_
