#include "kernels/columns/columns.h"

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunColumnsCpu(const ColumnsDesc& desc, const ColumnsParams& params,
                           Stream& stream);  // columns_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunColumnsCuda(const ColumnsDesc& desc,
                            const ColumnsParams& params,
                            Stream& stream);  // columns_cuda.cu
#endif

namespace {

const char* CpuRefuses(const ColumnsDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 ? nullptr : "activations must be f32";
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const ColumnsDesc& desc, const DeviceInfo&) {
  return IsPlainFloat(desc.activation) ? nullptr
                                       : "activations must be f32, f16 or bf16";
}
#endif

constexpr ColumnsRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunColumnsCuda},
#endif
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunColumnsCpu},
};

}  // namespace

absl::Span<const ColumnsRow> ColumnsTable() { return kRows; }

}  // namespace inlay
