#include "kernels/indexer/indexer.h"

#include "kernels/cpu_float.h"
#include "kernels/validate.h"
#include "memory/status.h"

namespace inlay {

absl::Status RunIndexerCpuSimd(const IndexerDesc& desc,
                               const IndexerParams& params,
                               Stream& stream);  // indexer_cpu_simd.cc
size_t IndexerCpuSimdBytes(const IndexerDesc& desc, int64_t max_rows);
absl::Status RunIndexerCpuScalar(const IndexerDesc& desc,
                                 const IndexerParams& params,
                                 Stream& stream);  // indexer_cpu.cc

#if INLAY_HAS_CUDA
// indexer_cuda.cu
absl::Status RunIndexerCudaPlain(const IndexerDesc& desc,
                                 const IndexerParams& params, Stream& stream);
absl::Status RunIndexerCudaMma(const IndexerDesc& desc,
                               const IndexerParams& params, Stream& stream);
size_t IndexerCudaBytes(const IndexerDesc& desc, int64_t max_rows);
#endif

namespace {

const char* CpuRefuses(const IndexerDesc& desc, const DeviceInfo&) {
  if (desc.activation != DType::kF32) return "activations must be f32";
  if (!IsKvFormat(desc.kv)) {
    return "the cache must be f32, f16, bf16, i8, f8_e4m3 or kv_q4";
  }
  return ValidateIndexer(desc).ok()
             ? nullptr
             : "num_heads, head_dim, key_tokens or top_k is out of range";
}

#if INLAY_HAS_CUDA
const char* PlainRefuses(const IndexerDesc& desc, const DeviceInfo& device) {
  if (!IsPlainFloat(desc.activation)) {
    return "activations must be f32, f16 or bf16";
  }
  if (desc.head_dim % 8 != 0) return "head_dim must be a multiple of 8";
  if (desc.max_keys < 1) return "max_keys must be at least 1";
  IndexerDesc rest = desc;
  rest.activation = DType::kF32;
  return CpuRefuses(rest, device);
}

const char* MmaRefuses(const IndexerDesc& desc, const DeviceInfo& device) {
  if (desc.activation != DType::kF16 && desc.activation != DType::kBF16) {
    return "activations must be f16 or bf16";
  }
  if (desc.kv != desc.activation) {
    return "the cache must be of the activations' type";
  }
  if (desc.head_dim != 32 && desc.head_dim != 64 && desc.head_dim != 128) {
    return "head_dim must be 32, 64 or 128";
  }
  return PlainRefuses(desc, device);
}
#endif

constexpr IndexerRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda_mma", DeviceKind::kCuda, 80, MmaRefuses, IndexerCudaBytes,
     RunIndexerCudaMma},
    {"cuda_plain", DeviceKind::kCuda, 80, PlainRefuses, IndexerCudaBytes,
     RunIndexerCudaPlain},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, IndexerCpuSimdBytes,
     RunIndexerCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunIndexerCpuScalar},
};

}  // namespace

absl::Span<const IndexerRow> IndexerTable() { return kRows; }

absl::Status ValidateIndexer(const IndexerDesc& desc) {
  INLAY_RETURN_IF_ERROR(
      CheckRange("indexer", "num_heads", desc.num_heads, 1, kMaxIndexHeads));
  INLAY_RETURN_IF_ERROR(
      CheckRange("indexer", "head_dim", desc.head_dim, 1, kMaxIndexHeadDim));
  INLAY_RETURN_IF_ERROR(
      CheckRange("indexer", "key_tokens", desc.key_tokens, 1, 1 << 16));
  if (desc.adds_partial && desc.key_tokens == 1) {
    return absl::InvalidArgumentError(
        "indexer: adds_partial is true; expected false where keys are of one "
        "token");
  }
  return CheckRange("indexer", "top_k", desc.top_k, 1, kMaxIndexTopK);
}

}  // namespace inlay
