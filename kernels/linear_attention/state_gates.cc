#include "kernels/linear_attention/state_gates.h"

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunStateGatesCpuScalar(const StateGatesDesc& desc,
                                    const StateGatesParams& params,
                                    Stream& stream);  // state_gates_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunStateGatesCuda(const StateGatesDesc& desc,
                               const StateGatesParams& params,
                               Stream& stream);  // state_gates_cuda.cu
#endif

namespace {

const char* CpuRefuses(const StateGatesDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 ? nullptr : "activations must be f32";
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const StateGatesDesc& desc, const DeviceInfo&) {
  return IsPlainFloat(desc.activation) ? nullptr
                                       : "activations must be f32, f16 or bf16";
}
#endif

constexpr StateGatesRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunStateGatesCuda},
#endif
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunStateGatesCpuScalar},
};

}  // namespace

absl::Span<const StateGatesRow> StateGatesTable() { return kRows; }

}  // namespace inlay
