#include "kernels/embedding/embedding.h"

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunEmbeddingCpuScalar(const EmbeddingDesc& desc,
                                   const EmbeddingParams& params,
                                   Stream& stream);  // embedding_cpu.cc

namespace {

const char* CpuRefuses(const EmbeddingDesc& desc, const DeviceInfo&) {
  if (desc.activation != DType::kF32) return "activations must be f32";
  if (!IsPlainFloat(desc.table)) return "the table must be f32, f16 or bf16";
  return nullptr;
}

constexpr EmbeddingRow kRows[] = {
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunEmbeddingCpuScalar},
};

}  // namespace

absl::Span<const EmbeddingRow> EmbeddingTable() { return kRows; }

}  // namespace inlay
