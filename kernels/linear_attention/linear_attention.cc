#include "kernels/linear_attention/linear_attention.h"

#include "kernels/cpu_float.h"
#if INLAY_HAS_CUDA
#include "kernels/linear_attention/linear_attention_cuda.h"
#endif

namespace inlay {

absl::Status RunLinearAttentionCpuSimd(
    const LinearAttentionDesc& desc, const LinearAttentionParams& params,
    Stream& stream);  // linear_attention_cpu_simd.cc
absl::Status RunLinearAttentionCpuScalar(
    const LinearAttentionDesc& desc, const LinearAttentionParams& params,
    Stream& stream);  // linear_attention_cpu.cc

namespace {

const char* RefusesShape(const LinearAttentionDesc& desc) {
  if (desc.num_key_heads < 1 || desc.num_heads % desc.num_key_heads != 0) {
    return "heads must be a multiple of key heads";
  }
  if (desc.key_dim < 1 || desc.key_dim > kMaxStateKeyDim) {
    return "keys must have 1 to 256 elements";
  }
  if (desc.normalised && desc.delta) {
    return "the delta rule has no normaliser";
  }
  return nullptr;
}

const char* CpuRefuses(const LinearAttentionDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 ? RefusesShape(desc)
                                        : "activations must be f32";
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const LinearAttentionDesc& desc, const DeviceInfo&) {
  return IsPlainFloat(desc.activation) ? RefusesShape(desc)
                                       : "activations must be f32, f16 or bf16";
}
#endif

#if INLAY_HAS_CUDA
const char* ChunksRefuse(const LinearAttentionDesc& desc,
                         const DeviceInfo& device) {
  if (const char* why = CudaRefuses(desc, device)) return why;
  // 153 to 166 KB of shared memory: those of a data centre.
  if (device.sm != 80 && device.sm != 90 && device.sm != 100) {
    return "needs more shared memory than such a GPU has";
  }
  return LinearAttentionChunksRefuses(desc);
}

absl::Status RunCuda(const LinearAttentionDesc& desc,
                     const LinearAttentionParams& params, Stream& stream) {
  return RunLinearAttentionTokens(desc, params, false, stream);
}
#endif

constexpr LinearAttentionRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda_chunks", DeviceKind::kCuda, 80, ChunksRefuse,
     LinearAttentionChunksWorkspaceBytes, RunLinearAttentionChunks},
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunCuda},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunLinearAttentionCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunLinearAttentionCpuScalar},
};

}  // namespace

absl::Span<const LinearAttentionRow> LinearAttentionTable() { return kRows; }

}  // namespace inlay
