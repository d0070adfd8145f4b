#include "kernels/attention/biased_attention.h"

#include <string_view>

#include "kernels/validate.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::Status RunBiasedAttentionCpuSimd(
    const AttentionDesc& desc, const BiasedAttentionParams& params,
    Stream& stream);  // attention_cpu_simd.cc
absl::Status RunBiasedAttentionCpuScalar(const AttentionDesc& desc,
                                         const BiasedAttentionParams& params,
                                         Stream& stream);  // attention_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunBiasedAttentionCudaMma(
    const AttentionDesc& desc, const BiasedAttentionParams& params,
    Stream& stream);  // biased_attention_cuda_mma.cu
absl::Status RunBiasedAttentionCudaPlain(
    const AttentionDesc& desc, const BiasedAttentionParams& params,
    Stream& stream);  // biased_attention_cuda_plain.cu
#endif

namespace {

constexpr char kOp[] = "biased_attention";

// What attention's row of that name does not compute either.
const char* AttentionRefuses(std::string_view name, const AttentionDesc& desc,
                             const DeviceInfo& device) {
  if (desc.selects > 0) return "keys must not be selected";
  for (const AttentionRow& row : AttentionTable()) {
    if (row.name == name) return row.refuses(desc, device);
  }
  return "attention has no such row";
}

const char* CpuRefuses(const AttentionDesc& desc, const DeviceInfo& device) {
  return AttentionRefuses("cpu_scalar", desc, device);
}

#if INLAY_HAS_CUDA
const char* PlainRefuses(const AttentionDesc& desc, const DeviceInfo& device) {
  if (desc.head_dim > 256) return "head_dim must be at most 256";
  return AttentionRefuses("cuda_plain", desc, device);
}

const char* MmaRefuses(const AttentionDesc& desc, const DeviceInfo& device) {
  if (desc.activation != DType::kF16 && desc.activation != DType::kBF16) {
    return "activations must be f16 or bf16";
  }
  if (desc.kv != desc.activation) {
    return "the cache must be of the activations' type";
  }
  if (desc.num_heads != desc.num_kv_heads) {
    return "every head must have keys of its own";
  }
  if (desc.value_dim > 0) return "values must have rows of their own";
  if (desc.head_dim != 64 && desc.head_dim != 128) {
    return "head_dim must be 64 or 128";
  }
  return PlainRefuses(desc, device);
}
#endif

constexpr BiasedAttentionRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda_mma", DeviceKind::kCuda, 80, MmaRefuses, nullptr,
     RunBiasedAttentionCudaMma},
    {"cuda_plain", DeviceKind::kCuda, 80, PlainRefuses, nullptr,
     RunBiasedAttentionCudaPlain},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunBiasedAttentionCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunBiasedAttentionCpuScalar},
};

}  // namespace

absl::Span<const BiasedAttentionRow> BiasedAttentionTable() { return kRows; }

absl::Status ValidateBiasedAttention(const AttentionDesc& desc,
                                     const BiasedAttentionParams& params) {
  INLAY_RETURN_IF_ERROR(ValidateAttention(desc, params.attention));
  if (desc.selects > 0 || params.attention.alibi_slopes != nullptr) {
    return absl::InvalidArgumentError(
        "biased_attention: selected keys or ALiBi besides");
  }
  if (params.bias.values == nullptr) {
    return absl::InvalidArgumentError("biased_attention: there is no bias");
  }
  return CheckRange(kOp, "reach", params.bias.reach, 0, kMaxBiasReach);
}

AttentionPlanShape MakeBiasedAttentionPlanShape(const BiasedAttentionRow& row,
                                                const AttentionDesc& desc,
                                                int block_size, int num_sms) {
  constexpr AttentionRow kPlain = {"cuda_plain", DeviceKind::kCuda, 80,
                                   nullptr,      nullptr,           nullptr};
  AttentionPlanShape shape =
      MakeAttentionPlanShape(kPlain, desc, block_size, num_sms);
  if (row.name != "cuda_mma") return shape;
  shape.item_rows = kAttentionWideItemRows;
  shape.whole_rows = true;
  // As many CTAs as fit (biased_attention_cuda_mma.cu).
  shape.grid = (desc.head_dim <= 64 ? 3 : 2) * num_sms;
  return shape;
}

}  // namespace inlay
