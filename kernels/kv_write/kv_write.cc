#include "kernels/kv_write/kv_write.h"

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunKvWriteCpuSimd(const KvWriteDesc& desc,
                               const KvWriteParams& params,
                               Stream& stream);  // kv_write_cpu_simd.cc
absl::Status RunKvWriteCpuScalar(const KvWriteDesc& desc,
                                 const KvWriteParams& params,
                                 Stream& stream);  // kv_write_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunKvWriteCuda(const KvWriteDesc& desc,
                            const KvWriteParams& params,
                            Stream& stream);  // kv_write_cuda.cu
#endif

namespace {

constexpr char kNotAKvFormat[] =
    "the cache must be f32, f16, bf16, i8, f8_e4m3 or kv_q4";

const char* CpuRefuses(const KvWriteDesc& desc, const DeviceInfo&) {
  if (desc.activation != DType::kF32) return "activations must be f32";
  return IsKvFormat(desc.kv) ? nullptr : kNotAKvFormat;
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const KvWriteDesc& desc, const DeviceInfo&) {
  if (!IsPlainFloat(desc.activation)) {
    return "activations must be f32, f16 or bf16";
  }
  return IsKvFormat(desc.kv) ? nullptr : kNotAKvFormat;
}
#endif

constexpr KvWriteRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunKvWriteCuda},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunKvWriteCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunKvWriteCpuScalar},
};

}  // namespace

absl::Span<const KvWriteRow> KvWriteTable() { return kRows; }

}  // namespace inlay
