#include "kernels/activation/sparse_gate.h"

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunSparseGateCpuSimd(const SparseGateDesc& desc,
                                  const SparseGateParams& params,
                                  Stream& stream);  // sparse_gate_cpu_simd.cc
absl::Status RunSparseGateCpuScalar(const SparseGateDesc& desc,
                                    const SparseGateParams& params,
                                    Stream& stream);  // sparse_gate_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunSparseGateCuda(const SparseGateDesc& desc,
                               const SparseGateParams& params,
                               Stream& stream);  // sparse_gate_cuda.cu
#endif

namespace {

const char* CpuRefuses(const SparseGateDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 ? nullptr : "activations must be f32";
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const SparseGateDesc& desc, const DeviceInfo&) {
  return IsPlainFloat(desc.activation) ? nullptr
                                       : "activations must be f32, f16 or bf16";
}
#endif

constexpr SparseGateRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunSparseGateCuda},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunSparseGateCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunSparseGateCpuScalar},
};

}  // namespace

absl::Span<const SparseGateRow> SparseGateTable() { return kRows; }

}  // namespace inlay
