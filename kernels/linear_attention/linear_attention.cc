#include "kernels/linear_attention/linear_attention.h"

namespace inlay {

absl::Status RunLinearAttentionCpuSimd(
    const LinearAttentionDesc& desc, const LinearAttentionParams& params,
    Stream& stream);  // linear_attention_cpu_simd.cc
absl::Status RunLinearAttentionCpuScalar(
    const LinearAttentionDesc& desc, const LinearAttentionParams& params,
    Stream& stream);  // linear_attention_cpu.cc

namespace {

const char* CpuRefuses(const LinearAttentionDesc& desc, const DeviceInfo&) {
  if (desc.activation != DType::kF32) return "activations must be f32";
  if (desc.num_key_heads < 1 || desc.num_heads % desc.num_key_heads != 0) {
    return "heads must be a multiple of key heads";
  }
  if (desc.key_dim < 1 || desc.key_dim > kMaxStateKeyDim) {
    return "keys must have 1 to 256 elements";
  }
  return nullptr;
}

constexpr LinearAttentionRow kRows[] = {
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunLinearAttentionCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunLinearAttentionCpuScalar},
};

}  // namespace

absl::Span<const LinearAttentionRow> LinearAttentionTable() { return kRows; }

}  // namespace inlay
