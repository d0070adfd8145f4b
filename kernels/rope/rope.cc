#include "kernels/rope/rope.h"

#include <cmath>

namespace inlay {

absl::Status RunRopeCpuScalar(const RopeDesc& desc, const RopeParams& params,
                              Stream& stream);  // rope_cpu.cc

namespace {

const char* CpuRefuses(const RopeDesc& desc, const DeviceInfo&) {
  if (desc.activation != DType::kF32) return "activations must be f32";
  if (desc.rotary_dim < 0 || desc.rotary_dim % 2 != 0 ||
      desc.rotary_dim > desc.head_dim) {
    return "rotary_dim must be even and at most head_dim";
  }
  return nullptr;
}

constexpr RopeRow kRows[] = {
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunRopeCpuScalar},
};

}  // namespace

absl::Span<const RopeRow> RopeTable() { return kRows; }

void FillRopeAngles(absl::Span<const int32_t> positions,
                    absl::Span<const float> inv_freq, float scale, float* cos,
                    float* sin) {
  for (const int32_t position : positions) {
    for (const float frequency : inv_freq) {
      const float angle = static_cast<float>(position) * frequency;
      *cos++ = std::cos(angle) * scale;
      *sin++ = std::sin(angle) * scale;
    }
  }
}

}  // namespace inlay
