#include "kernels/columns/columns.h"

namespace inlay {

absl::Status RunColumnsCpu(const ColumnsDesc& desc, const ColumnsParams& params,
                           Stream& stream);  // columns_cpu.cc

namespace {

const char* CpuRefuses(const ColumnsDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 ? nullptr : "activations must be f32";
}

constexpr ColumnsRow kRows[] = {
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunColumnsCpu},
};

}  // namespace

absl::Span<const ColumnsRow> ColumnsTable() { return kRows; }

}  // namespace inlay
