#include "kernels/kv_write/kv_write.h"

namespace inlay {

absl::Status RunKvWriteCpuSimd(const KvWriteDesc& desc,
                               const KvWriteParams& params,
                               Stream& stream);  // kv_write_cpu_simd.cc
absl::Status RunKvWriteCpuScalar(const KvWriteDesc& desc,
                                 const KvWriteParams& params,
                                 Stream& stream);  // kv_write_cpu.cc

namespace {

const char* CpuRefuses(const KvWriteDesc& desc, const DeviceInfo&) {
  if (desc.activation != DType::kF32) return "activations must be f32";
  if (!IsKvFormat(desc.kv)) {
    return "the cache must be f32, f16, bf16, i8, f8_e4m3 or kv_q4";
  }
  return nullptr;
}

constexpr KvWriteRow kRows[] = {
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunKvWriteCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunKvWriteCpuScalar},
};

}  // namespace

absl::Span<const KvWriteRow> KvWriteTable() { return kRows; }

}  // namespace inlay
