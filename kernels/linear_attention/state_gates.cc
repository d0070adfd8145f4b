#include "kernels/linear_attention/state_gates.h"

namespace inlay {

absl::Status RunStateGatesCpuScalar(const StateGatesDesc& desc,
                                    const StateGatesParams& params,
                                    Stream& stream);  // state_gates_cpu.cc

namespace {

const char* CpuRefuses(const StateGatesDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 ? nullptr : "activations must be f32";
}

constexpr StateGatesRow kRows[] = {
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunStateGatesCpuScalar},
};

}  // namespace

absl::Span<const StateGatesRow> StateGatesTable() { return kRows; }

}  // namespace inlay
