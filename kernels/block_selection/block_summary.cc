#include "kernels/block_selection/block_summary.h"

#include "kernels/validate.h"
#include "memory/status.h"

namespace inlay {

absl::Status RunBlockSummaryCpu(const BlockSummaryDesc& desc,
                                const BlockSummaryParams& params,
                                Stream& stream);  // block_summary_cpu.cc
#if INLAY_HAS_CUDA
absl::Status RunBlockSummaryCuda(const BlockSummaryDesc& desc,
                                 const BlockSummaryParams& params,
                                 Stream& stream);  // block_summary_cuda.cu
#endif

namespace {

const char* CpuRefuses(const BlockSummaryDesc& desc, const DeviceInfo&) {
  if (!IsKvFormat(desc.kv)) {
    return "the cache must be f32, f16, bf16, i8, f8_e4m3 or kv_q4";
  }
  return ValidateBlockSummary(desc).ok()
             ? nullptr
             : "the method, num_kv_heads or head_dim is out of range";
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const BlockSummaryDesc& desc,
                        const DeviceInfo& device) {
  if (desc.head_dim % 8 != 0) return "head_dim must be a multiple of 8";
  return CpuRefuses(desc, device);
}
#endif

constexpr BlockSummaryRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunBlockSummaryCuda},
#endif
    {"cpu", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunBlockSummaryCpu},
};

}  // namespace

absl::Span<const BlockSummaryRow> BlockSummaryTable() { return kRows; }

size_t BlockSummaryBytes(BlockMethod method, int head_dim) {
  constexpr size_t kElementBytes = 2;  // bf16
  const auto dim = static_cast<size_t>(head_dim);
  switch (method) {
    case BlockMethod::kNone:
      return 0;
    case BlockMethod::kBounds:
      return 2 * dim * kElementBytes;
    case BlockMethod::kKMeans:
      return kCentroids * dim * kElementBytes;
    case BlockMethod::kLsh:
      return size_t{kSelectBlock} * kHashWords * sizeof(uint64_t);
  }
  return 0;
}

KvLayerShape BlockSummaryShape(BlockMethod method, const KvLayerShape& keys,
                               DType kv) {
  const size_t bytes = BlockSummaryBytes(method, keys.head_dim);
  KvLayerShape shape;
  shape.num_kv_heads = keys.num_kv_heads;
  shape.head_dim = 1;
  while (kSelectBlock * KvRowBytes(kv, shape.head_dim) < bytes) {
    ++shape.head_dim;
  }
  shape.value_dim = shape.head_dim;
  return shape;
}

absl::Status ValidateBlockSummary(const BlockSummaryDesc& desc) {
  INLAY_RETURN_IF_ERROR(CheckRange("block_summary", "method",
                                   static_cast<int64_t>(desc.method), 1, 3));
  INLAY_RETURN_IF_ERROR(CheckRange("block_summary", "num_kv_heads",
                                   desc.num_kv_heads, 1, 1 << 16));
  return CheckRange("block_summary", "head_dim", desc.head_dim, 1,
                    kMaxSummaryHeadDim);
}

}  // namespace inlay
