#include "kernels/linear_attention/decode_delta.h"

#include "kernels/cpu_float.h"

namespace inlay {

#if INLAY_HAS_CUDA
absl::Status RunDecodeDeltaCuda(const DecodeDeltaDesc& desc,
                                const DecodeDeltaParams& params,
                                Stream& stream);  // decode_delta_cuda.cu

namespace {

const char* CudaRefuses(const DecodeDeltaDesc& desc, const DeviceInfo&) {
  const LinearAttentionDesc& rule = desc.rule;
  if (!IsPlainFloat(rule.activation)) {
    return "activations must be f32, f16 or bf16";
  }
  if (!rule.delta || rule.decay == StateDecay::kNone ||
      rule.feature_map != FeatureMap::kNone) {
    return "written for the gated delta rule";
  }
  if (desc.conv.num_taps != 4 || !desc.conv.silu) {
    return "written for 4 taps and SiLU";
  }
  const bool small = rule.key_dim <= 32 && rule.key_dim % 8 == 0;
  if (!small && rule.key_dim != 128) {
    return "keys must have 8, 16, 24, 32 or 128 elements";
  }
  if (rule.value_dim != (small ? 32 : 128)) {
    return "values must have 128 elements, 32 where keys have few";
  }
  if (!desc.unit.normalise || desc.unit.gate != GateFunction::kNone ||
      desc.unit.shared_weight) {
    return "q and k must be normalised, each channel with a weight, no gate";
  }
  if (!desc.norm.normalise || desc.norm.gate == GateFunction::kNone ||
      desc.norm.group_gates || desc.norm.gate_first ||
      !desc.norm.shared_weight) {
    return "norms must be gated, the gate after them, one weight for all heads";
  }
  return nullptr;
}

constexpr DecodeDeltaRow kRows[] = {
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunDecodeDeltaCuda}};

}  // namespace

absl::Span<const DecodeDeltaRow> DecodeDeltaTable() { return kRows; }
#else
absl::Span<const DecodeDeltaRow> DecodeDeltaTable() { return {}; }
#endif

}  // namespace inlay
