#include "kernels/embedding/embedding.h"

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunEmbeddingCpuScalar(const EmbeddingDesc& desc,
                                   const EmbeddingParams& params,
                                   Stream& stream);  // embedding_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunEmbeddingCuda(const EmbeddingDesc& desc,
                              const EmbeddingParams& params,
                              Stream& stream);  // embedding_cuda.cu
#endif

namespace {

const char* Refuses(const EmbeddingDesc& desc, const DeviceInfo&) {
  if (desc.activation != DType::kF32) return "activations must be f32";
  if (!IsPlainFloat(desc.table)) return "the table must be f32, f16 or bf16";
  return nullptr;
}

constexpr EmbeddingRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, Refuses, nullptr, RunEmbeddingCuda},
#endif
    {"cpu_scalar", DeviceKind::kCpu, 0, Refuses, nullptr,
     RunEmbeddingCpuScalar},
};

}  // namespace

absl::Span<const EmbeddingRow> EmbeddingTable() { return kRows; }

}  // namespace inlay
