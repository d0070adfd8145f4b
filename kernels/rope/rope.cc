#include "kernels/rope/rope.h"

#include <cmath>

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunRopeCpuScalar(const RopeDesc& desc, const RopeParams& params,
                              Stream& stream);  // rope_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunRopeCuda(const RopeDesc& desc, const RopeParams& params,
                         Stream& stream);  // rope_cuda.cu
#endif

namespace {

const char* RotaryMisfit(const RopeDesc& desc) {
  if (desc.rotary_dim < 0 || desc.rotary_dim % 2 != 0 || desc.first < 0 ||
      desc.rotary_dim > desc.head_dim - desc.first) {
    return "rotary_dim must be even and at most head_dim - first";
  }
  return nullptr;
}

const char* CpuRefuses(const RopeDesc& desc, const DeviceInfo&) {
  if (desc.activation != DType::kF32) return "activations must be f32";
  return RotaryMisfit(desc);
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const RopeDesc& desc, const DeviceInfo&) {
  if (!IsPlainFloat(desc.activation)) {
    return "activations must be f32, f16 or bf16";
  }
  return RotaryMisfit(desc);
}
#endif

constexpr RopeRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunRopeCuda},
#endif
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunRopeCpuScalar},
};

}  // namespace

absl::Span<const RopeRow> RopeTable() { return kRows; }

void FillRopeAngles(absl::Span<const int32_t> positions,
                    absl::Span<const float> inv_freq, float scale, float* cos,
                    float* sin, int32_t step) {
  for (const int32_t position : positions) {
    const int32_t rounded = position / step * step;
    for (const float frequency : inv_freq) {
      const float angle = static_cast<float>(rounded) * frequency;
      *cos++ = std::cos(angle) * scale;
      *sin++ = std::sin(angle) * scale;
    }
  }
}

#if !INLAY_HAS_CUDA
absl::Status FillRopeAnglesCuda(const int32_t*, int64_t, const float*, int64_t,
                                float, float*, float*, Stream&, int32_t) {
  return absl::UnimplementedError("rope: this build has no CUDA");
}
#endif

}  // namespace inlay
