#include "kernels/activation/activation.h"

#include <utility>

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunActivationCpuSimd(const ActivationDesc& desc,
                                  const ActivationParams& params,
                                  Stream& stream);  // activation_cpu_simd.cc
absl::Status RunActivationCpuScalar(const ActivationDesc& desc,
                                    const ActivationParams& params,
                                    Stream& stream);  // activation_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunActivationCuda(const ActivationDesc& desc,
                               const ActivationParams& params,
                               Stream& stream);  // activation_cuda.cu
#endif

namespace {

const char* FunctionRefuses(const ActivationDesc& desc) {
  if (!HasLimit(desc.function)) return nullptr;
  if (!desc.gated) return "a clamped SiLU must be gated";
  return desc.limit > 0.0f ? nullptr : "the limit must be positive";
}

const char* CpuRefuses(const ActivationDesc& desc, const DeviceInfo&) {
  if (const char* why = FunctionRefuses(desc)) return why;
  return desc.activation == DType::kF32 ? nullptr : "activations must be f32";
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const ActivationDesc& desc, const DeviceInfo&) {
  if (const char* why = FunctionRefuses(desc)) return why;
  return IsPlainFloat(desc.activation) ? nullptr
                                       : "activations must be f32, f16 or bf16";
}
#endif

constexpr ActivationRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunActivationCuda},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunActivationCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunActivationCpuScalar},
};

}  // namespace

absl::Span<const ActivationRow> ActivationTable() { return kRows; }

std::optional<Activation> ActivationFromName(std::string_view name) {
  constexpr std::pair<std::string_view, Activation> kNames[] = {
      {"silu", Activation::kSilu},
      {"swish", Activation::kSilu},
      {"gelu", Activation::kGelu},
      {"gelu_new", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"relu", Activation::kRelu},
      {"relu2", Activation::kReluSquared},
  };
  for (const auto& [known, function] : kNames) {
    if (name == known) return function;
  }
  return std::nullopt;
}

}  // namespace inlay
