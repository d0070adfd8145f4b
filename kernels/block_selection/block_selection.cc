#include "kernels/block_selection/block_selection.h"

#include <limits>

#include "kernels/cpu_float.h"
#include "kernels/validate.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::Status RunBlockSelectionCpuSimd(
    const BlockSelectionDesc& desc, const BlockSelectionParams& params,
    Stream& stream);  // block_selection_cpu_simd.cc
size_t BlockSelectionCpuSimdBytes(const BlockSelectionDesc& desc, int64_t rows);
absl::Status RunBlockSelectionCpuScalar(
    const BlockSelectionDesc& desc, const BlockSelectionParams& params,
    Stream& stream);  // block_selection_cpu.cc

#if INLAY_HAS_CUDA
// block_selection_cuda.cu
absl::Status RunBlockSelectionCuda(const BlockSelectionDesc& desc,
                                   const BlockSelectionParams& params,
                                   Stream& stream);
size_t BlockSelectionCudaBytes(const BlockSelectionDesc& desc,
                               int64_t max_rows);
#endif

namespace {

const char* CpuRefuses(const BlockSelectionDesc& desc, const DeviceInfo&) {
  if (desc.activation != DType::kF32) return "activations must be f32";
  return ValidateBlockSelection(desc).ok()
             ? nullptr
             : "the method, heads, head_dim or num_blocks is out of range";
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const BlockSelectionDesc& desc,
                        const DeviceInfo& device) {
  if (!IsPlainFloat(desc.activation)) {
    return "activations must be f32, f16 or bf16";
  }
  if (desc.head_dim % 8 != 0) return "head_dim must be a multiple of 8";
  BlockSelectionDesc rest = desc;
  rest.activation = DType::kF32;
  return CpuRefuses(rest, device);
}
#endif

constexpr BlockSelectionRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, BlockSelectionCudaBytes,
     RunBlockSelectionCuda},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, BlockSelectionCpuSimdBytes,
     RunBlockSelectionCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunBlockSelectionCpuScalar},
};

}  // namespace

absl::Span<const BlockSelectionRow> BlockSelectionTable() { return kRows; }

absl::Status ValidateBlockSelectionOptions(
    const BlockSelectionOptions& options) {
  if (!options.any()) {
    if (options.tokens == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(FormattedString(
        "block_selection: %d tokens without a method; name one, or give 0",
        options.tokens));
  }
  constexpr int64_t kLeast = int64_t{kMinSelectedBlocks} * kSelectBlock;
  constexpr int64_t kMost = int64_t{kMaxSelectedBlocks} * kSelectBlock;
  if (options.method > BlockMethod::kLsh || options.tokens < kLeast ||
      options.tokens > kMost || options.tokens % kSelectBlock != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "block_selection: method %d of %d tokens, allowed: a method of 1 to 3, "
        "and a multiple of %d from %d to %d tokens",
        static_cast<int>(options.method), options.tokens, kSelectBlock, kLeast,
        kMost));
  }
  return absl::OkStatus();
}

std::string FormatBlockSelection(const BlockSelectionOptions& options) {
  constexpr const char* kNames[] = {"", "bounds", "kmeans", "lsh"};
  if (!options.any()) return "";
  return FormattedString("%s:%d", kNames[static_cast<int>(options.method)],
                         options.tokens);
}

absl::Status ValidateBlockSelection(const BlockSelectionDesc& desc) {
  BlockSummaryDesc summary;
  summary.method = desc.method;
  summary.num_kv_heads = desc.num_kv_heads;
  summary.head_dim = desc.head_dim;
  INLAY_RETURN_IF_ERROR(ValidateBlockSummary(summary));
  if (desc.num_heads < 1 || desc.num_heads % desc.num_kv_heads != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "block_selection: num_heads is %d; expected a multiple of "
        "num_kv_heads, %d",
        desc.num_heads, desc.num_kv_heads));
  }
  INLAY_RETURN_IF_ERROR(CheckRange("block_selection", "heads a KV head",
                                   desc.num_heads / desc.num_kv_heads, 1,
                                   kMaxSelectingGroup));
  INLAY_RETURN_IF_ERROR(CheckRange("block_selection", "max_keys", desc.max_keys,
                                   1, std::numeric_limits<int32_t>::max()));
  return CheckRange("block_selection", "num_blocks", desc.num_blocks,
                    kMinSelectedBlocks, kMaxSelectedBlocks);
}

}  // namespace inlay
