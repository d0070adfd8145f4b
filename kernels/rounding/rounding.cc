#include "kernels/rounding/rounding.h"

#include "kernels/cpu_float.h"
#if INLAY_HAS_CUDA
#include "kernels/rounding/rounding_cuda.h"
#endif

namespace inlay {

absl::Status RunRoundingCpu(const RoundingDesc& desc,
                            const RoundingParams& params,
                            Stream& stream);  // rounding_cpu.cc

namespace {

const char* Refuses(const RoundingDesc& desc, const DeviceInfo&) {
  if (desc.width <= 0 || desc.width % kRoundingGroup != 0) {
    return "rows must be multiples of 128 columns";
  }
  if (desc.activation != DType::kF16 && desc.activation != DType::kBF16) {
    return "activations must be f16 or bf16";
  }
  if (desc.source == RoundingSource::kRmsNorm ? !IsPlainFloat(desc.input)
                                              : desc.input != desc.activation) {
    return "x must be an activation, or a norm's x f32, f16 or bf16";
  }
  if (HasLimit(desc.function) && !(desc.limit > 0.0f)) {
    return "the limit must be positive";
  }
  return nullptr;
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const RoundingDesc& desc, const DeviceInfo& device) {
  if (const char* why = Refuses(desc, device)) return why;
  return RoundingCudaRefuses(desc);
}
#endif

const char* CpuRefuses(const RoundingDesc& desc, const DeviceInfo& device) {
  if (desc.source != RoundingSource::kPlain) return "x itself only";
  return Refuses(desc, device);
}

constexpr RoundingRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunRoundingCuda},
#endif
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunRoundingCpu},
};

}  // namespace

absl::Span<const RoundingRow> RoundingTable() { return kRows; }

}  // namespace inlay
