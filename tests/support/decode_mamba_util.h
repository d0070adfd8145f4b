// What tests and measurements of decode_mamba share: descriptions, and the ops
// apart that it stands for. Header only.
#ifndef INLAY_TESTS_SUPPORT_DECODE_MAMBA_UTIL_H_
#define INLAY_TESTS_SUPPORT_DECODE_MAMBA_UTIL_H_

#include "kernels/elementwise/elementwise.h"
#include "kernels/linear_attention/decode_mamba.h"
#include "memory/status.h"

namespace inlay::testing {

struct MambaShape {
  int num_heads;
  int num_groups;
  int state_size;
  int head_dim;
  DType type;
  int norm_groups = 0;  // 0: the gate alone
  bool gate_first = true;
  float output_scale = 1.0f;
  bool finishes = true;
  bool vectors = true;  // biases of the convolution, skips

  int64_t inner() const { return int64_t{num_heads} * head_dim; }
  int64_t keys() const { return int64_t{num_groups} * state_size; }
  int64_t channels() const { return inner() + 2 * keys(); }
};

inline DecodeMambaDesc DecodeMambaDescOf(const MambaShape& shape) {
  DecodeMambaDesc desc;
  desc.conv = {shape.channels(), 4, true, shape.type};
  desc.gates.num_heads = shape.num_heads;
  desc.gates.x_scale = 0.8f;
  desc.gates.least = 1e-3f;
  desc.gates.most = 4.0f;
  desc.gates.activation = shape.type;
  desc.scan.num_heads = shape.num_heads;
  desc.scan.num_key_heads = shape.num_groups;
  desc.scan.key_dim = shape.state_size;
  desc.scan.value_dim = shape.head_dim;
  desc.scan.decay = StateDecay::kHead;
  desc.scan.activation = shape.type;
  desc.scan.batch_invariant = true;  // token by token
  desc.finishes = shape.finishes;
  desc.norm.normalise = shape.norm_groups > 0;
  desc.norm.groups = desc.norm.normalise ? shape.norm_groups : 1;
  desc.norm.width = shape.inner() / desc.norm.groups;
  desc.norm.gate_first = shape.gate_first;
  desc.norm.gate_scale = 1.25f;
  desc.norm.activation = shape.type;
  desc.output_scale = shape.output_scale;
  return desc;
}

// The launches apart: four; five with a factor of the output, three where the
// op does not finish. `mixed`: [sequences, channels]; decay and step as
// state_gates writes them. y may be columns of `mixed`.
inline absl::Status RunMambaApart(const DecodeMambaDesc& desc,
                                  const DecodeMambaParams& params,
                                  const TensorView& mixed,
                                  const TensorView& decay,
                                  const TensorView& step,
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
  conv.bias = params.conv_bias;
  conv.state = params.conv_state;
  conv.y = mixed;
  INLAY_RETURN_IF_ERROR(run(ShortConvTable(), desc.conv, conv));
  StateGatesParams gates;
  gates.x = params.dt;
  gates.bias = params.dt_bias;
  gates.a_log = params.a_log;
  gates.decay = decay;
  gates.beta = step;
  INLAY_RETURN_IF_ERROR(run(StateGatesTable(), desc.gates, gates));
  const int64_t inner = params.y.cols();
  const int64_t keys = int64_t{desc.scan.num_key_heads} * desc.scan.key_dim;
  LinearAttentionParams scan;
  scan.v = columns(0, inner);
  scan.k = columns(inner, keys);
  scan.q = columns(inner + keys, keys);
  scan.decay = decay;
  scan.beta = step;
  scan.skip = params.skip;
  scan.state = params.state;
  scan.y = desc.finishes ? scan.v : params.y;
  INLAY_RETURN_IF_ERROR(run(LinearAttentionTable(), desc.scan, scan));
  if (!desc.finishes) return absl::OkStatus();
  GatedNormParams norm;
  norm.x = scan.y;
  norm.y = params.y;
  norm.z = params.z;
  norm.weight = params.norm;
  norm.epsilon = params.epsilon;
  INLAY_RETURN_IF_ERROR(run(GatedNormTable(), desc.norm, norm));
  if (desc.output_scale == 1.0f) return absl::OkStatus();
  ElementwiseDesc scale;
  scale.function = Elementwise::kScale;
  scale.width = inner;
  scale.activation = desc.scan.activation;
  ElementwiseParams scaled;
  scaled.y = params.y;
  scaled.value = desc.output_scale;
  return run(ElementwiseTable(), scale, scaled);
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_DECODE_MAMBA_UTIL_H_
