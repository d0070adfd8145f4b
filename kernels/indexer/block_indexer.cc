#include "kernels/indexer/block_indexer.h"

#include <bit>
#include <limits>

#include "kernels/cpu_float.h"
#include "kernels/validate.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::Status RunBlockIndexerCpuSimd(
    const BlockIndexerDesc& desc, const BlockIndexerParams& params,
    Stream& stream);  // block_indexer_cpu_simd.cc
size_t BlockIndexerCpuSimdBytes(const BlockIndexerDesc& desc, int64_t max_rows);
absl::Status RunBlockIndexerCpuScalar(const BlockIndexerDesc& desc,
                                      const BlockIndexerParams& params,
                                      Stream& stream);  // block_indexer_cpu.cc

#if INLAY_HAS_CUDA
// block_indexer_cuda.cu
absl::Status RunBlockIndexerCuda(const BlockIndexerDesc& desc,
                                 const BlockIndexerParams& params,
                                 Stream& stream);
size_t BlockIndexerCudaBytes(const BlockIndexerDesc& desc, int64_t max_rows);
#endif

namespace {

const char* CpuRefuses(const BlockIndexerDesc& desc, const DeviceInfo&) {
  if (desc.activation != DType::kF32) return "activations must be f32";
  if (!IsKvFormat(desc.kv)) {
    return "the cache must be f32, f16, bf16, i8, f8_e4m3 or kv_q4";
  }
  return ValidateBlockIndexer(desc).ok()
             ? nullptr
             : "num_heads, head_dim, max_keys or what is selected is out of "
               "range";
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const BlockIndexerDesc& desc,
                        const DeviceInfo& device) {
  if (!IsPlainFloat(desc.activation)) {
    return "activations must be f32, f16 or bf16";
  }
  if (desc.head_dim % 8 != 0) return "head_dim must be a multiple of 8";
  BlockIndexerDesc rest = desc;
  rest.activation = DType::kF32;
  return CpuRefuses(rest, device);
}
#endif

constexpr BlockIndexerRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, BlockIndexerCudaBytes,
     RunBlockIndexerCuda},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, BlockIndexerCpuSimdBytes,
     RunBlockIndexerCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunBlockIndexerCpuScalar},
};

}  // namespace

absl::Span<const BlockIndexerRow> BlockIndexerTable() { return kRows; }

absl::Status ValidateBlockIndexer(const BlockIndexerDesc& desc) {
  constexpr char kOp[] = "block_indexer";
  INLAY_RETURN_IF_ERROR(
      CheckRange(kOp, "num_heads", desc.num_heads, 1, kMaxIndexHeads));
  INLAY_RETURN_IF_ERROR(
      CheckRange(kOp, "head_dim", desc.head_dim, 1, kMaxIndexHeadDim));
  INLAY_RETURN_IF_ERROR(
      CheckRange(kOp, "block", desc.block, 1, kMaxIndexBlock));
  if (!std::has_single_bit(static_cast<uint32_t>(desc.block))) {
    return absl::InvalidArgumentError(FormattedString(
        "%s: block is %d; expected a power of two", kOp, desc.block));
  }
  INLAY_RETURN_IF_ERROR(CheckRange(kOp, "max_keys", desc.max_keys, 1,
                                   std::numeric_limits<int32_t>::max()));
  INLAY_RETURN_IF_ERROR(
      CheckRange(kOp, "selects", desc.selects, 1, kMaxIndexTopK));
  return CheckRange(kOp, "neighbours", desc.neighbours, 1, desc.selects);
}

}  // namespace inlay
