#include "kernels/kv_write/kv_write.h"

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunKvWriteCpuScalar(const KvWriteDesc& desc,
                                 const KvWriteParams& params,
                                 Stream& stream);  // kv_write_cpu.cc

namespace {

const char* CpuRefuses(const KvWriteDesc& desc, const DeviceInfo&) {
  if (desc.activation != DType::kF32) return "activations must be f32";
  if (!IsPlainFloat(desc.kv)) return "the cache must be f32, f16 or bf16";
  return nullptr;
}

constexpr KvWriteRow kRows[] = {
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunKvWriteCpuScalar},
};

}  // namespace

absl::Span<const KvWriteRow> KvWriteTable() { return kRows; }

}  // namespace inlay
