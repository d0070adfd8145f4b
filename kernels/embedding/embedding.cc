#include "kernels/embedding/embedding.h"

#include "kernels/cpu_float.h"
#include "kernels/quant/quant.h"

namespace inlay {

absl::Status RunEmbeddingCpuScalar(const EmbeddingDesc& desc,
                                   const EmbeddingParams& params,
                                   Stream& stream);  // embedding_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunEmbeddingCuda(const EmbeddingDesc& desc,
                              const EmbeddingParams& params,
                              Stream& stream);  // embedding_cuda.cu
absl::Status RunEmbeddingBlocksCuda(
    const EmbeddingDesc& desc, const EmbeddingParams& params,
    Stream& stream);  // embedding_blocks_cuda.cu
#endif

namespace {

const char* CpuRefuses(const EmbeddingDesc& desc, const DeviceInfo&) {
  if (desc.activation != DType::kF32) return "activations must be f32";
  if (!IsPlainFloat(desc.table) && !IsBlockFormat(desc.table)) {
    return "the table must be f32, f16, bf16 or a block format";
  }
  if (desc.width % GetFormatInfo(desc.table).block_elements != 0) {
    return "the width must be a multiple of the format's block";
  }
  return nullptr;
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const EmbeddingDesc& desc, const DeviceInfo&) {
  if (desc.activation != DType::kF32 && desc.activation != desc.table) {
    return "activations must be f32 or of the table's type";
  }
  if (!IsPlainFloat(desc.table)) return "the table must be f32, f16 or bf16";
  return nullptr;
}

const char* CudaBlocksRefuses(const EmbeddingDesc& desc,
                              const DeviceInfo& device) {
  if (!IsBlockFormat(desc.table)) return "the table must be a block format";
  return CpuRefuses(desc, device);
}
#endif

constexpr EmbeddingRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunEmbeddingCuda},
    {"cuda_blocks", DeviceKind::kCuda, 80, CudaBlocksRefuses, nullptr,
     RunEmbeddingBlocksCuda},
#endif
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunEmbeddingCpuScalar},
};

}  // namespace

absl::Span<const EmbeddingRow> EmbeddingTable() { return kRows; }

}  // namespace inlay
