#include "kernels/attention/expanded_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention/attention_expand.h"
#include "kernels/validate.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::Status RunExpandedAttentionCpuScalar(
    const ExpandedAttentionDesc& desc, const ExpandedAttentionParams& params,
    Stream& stream);  // expanded_attention_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunExpandedAttentionCudaSm90(
    const ExpandedAttentionDesc& desc, const ExpandedAttentionParams& params,
    Stream& stream);  // expanded_attention_d192_sm90.cu
#endif

namespace {

const char* CpuRefuses(const ExpandedAttentionDesc& desc, const DeviceInfo&) {
  if (desc.activation != DType::kF32 || desc.weight != DType::kF32) {
    return "activations and weights must be f32";
  }
  if (!IsKvFormat(desc.kv)) {
    return "the cache must be f32, f16, bf16, i8, f8_e4m3 or kv_q4";
  }
  return nullptr;
}

#if INLAY_HAS_CUDA
const char* Sm90Refuses(const ExpandedAttentionDesc& desc,
                        const DeviceInfo& device) {
  if (device.sm != 90) return "needs compute capability 9.0";
  if (desc.activation != DType::kF16 && desc.activation != DType::kBF16) {
    return "activations must be f16 or bf16";
  }
  if (desc.kv != desc.activation || desc.weight != desc.activation) {
    return "cache and weights must be of the activations' type";
  }
  if (std::ranges::find(kExpandedDims, desc.dims()) ==
      std::ranges::end(kExpandedDims)) {
    return "key_dim, rope_dim, value_dim, rank must be 128, 64, 128, 512, or "
           "192, 64, 256, 512, or 64, 32, 64, 256";
  }
  if (desc.block_size % 16 != 0) return "block_size must be a multiple of 16";
  return nullptr;
}
#endif

constexpr ExpandedAttentionRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda_sm90", DeviceKind::kCuda, 90, Sm90Refuses, nullptr,
     RunExpandedAttentionCudaSm90},
#endif
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunExpandedAttentionCpuScalar},
};

constexpr char kOp[] = "expanded_attention";

}  // namespace

absl::Span<const ExpandedAttentionRow> ExpandedAttentionTable() {
  return kRows;
}

absl::Status ValidateExpandedAttention(const ExpandedAttentionDesc& desc,
                                       const ExpandedAttentionParams& params) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  INLAY_RETURN_IF_ERROR(
      CheckRange(kOp, "num_heads", desc.num_heads, 1, 1 << 16));
  INLAY_RETURN_IF_ERROR(CheckRange(kOp, "rank", desc.rank, 1, 1 << 16));
  INLAY_RETURN_IF_ERROR(CheckRange(kOp, "key_dim", desc.key_dim, 1, 1 << 16));
  INLAY_RETURN_IF_ERROR(CheckRange(kOp, "rope_dim", desc.rope_dim, 0, 1 << 16));
  INLAY_RETURN_IF_ERROR(
      CheckRange(kOp, "value_dim", desc.value_dim, 1, 1 << 16));
  if (!std::isfinite(desc.scale)) {
    return absl::InvalidArgumentError(FormattedString(
        "expanded_attention: scale is %g; expected finite", desc.scale));
  }
  const KvLayerView& kv = params.kv;
  if (kv.dtype != desc.kv || kv.num_kv_heads != 1 ||
      kv.head_dim != desc.rank + desc.rope_dim || kv.value_dim != desc.rank ||
      kv.block_size != desc.block_size) {
    return absl::InvalidArgumentError(
        FormattedString("expanded_attention: the cache is %s, %d heads of %d, "
                        "values %d, blocks "
                        "of %d; expected %s, 1 of %d, %d, %d",
                        DTypeName(kv.dtype), kv.num_kv_heads, kv.head_dim,
                        kv.value_dim, kv.block_size, DTypeName(desc.kv),
                        desc.rank + desc.rope_dim, desc.rank, desc.block_size));
  }
  const int64_t tokens = params.q.rows();
  const int64_t heads = desc.num_heads;
  INLAY_RETURN_IF_ERROR(CheckMatrix(kOp, "q", params.q, tokens,
                                    heads * desc.head_dim(), desc.activation));
  INLAY_RETURN_IF_ERROR(CheckMatrix(kOp, "out", params.out, tokens,
                                    heads * desc.value_dim, desc.activation));
  if (Overlap(params.q, params.out)) {
    return absl::InvalidArgumentError("expanded_attention: out overlaps q");
  }
  if (params.keys.base == nullptr || params.values.base == nullptr) {
    return absl::InvalidArgumentError(
        "expanded_attention: there are no matrices");
  }
  for (const AttentionSequence& sequence : params.sequences) {
    INLAY_RETURN_IF_ERROR(
        CheckRange(kOp, "q_begin", sequence.q_begin, 0, tokens));
    INLAY_RETURN_IF_ERROR(
        CheckRange(kOp, "q_len", sequence.q_len, 0, tokens - sequence.q_begin));
    INLAY_RETURN_IF_ERROR(
        CheckRange(kOp, "kv_len", sequence.kv_len, sequence.q_len, kMost));
    if (sequence.kv_len > 0 &&
        (sequence.blocks == nullptr || kv.base.empty())) {
      return absl::InvalidArgumentError(
          "expanded_attention: a sequence with keys has no blocks");
    }
  }
  return absl::OkStatus();
}

}  // namespace inlay
