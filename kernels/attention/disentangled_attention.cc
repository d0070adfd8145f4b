#include "kernels/attention/disentangled_attention.h"

#include <string_view>

#include "kernels/validate.h"
#include "memory/status.h"

namespace inlay {

absl::Status RunDisentangledAttentionCpuSimd(
    const AttentionDesc& desc, const DisentangledAttentionParams& params,
    Stream& stream);  // attention_cpu_simd.cc
absl::Status RunDisentangledAttentionCpuScalar(
    const AttentionDesc& desc, const DisentangledAttentionParams& params,
    Stream& stream);  // attention_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunDisentangledAttentionCudaMma(
    const AttentionDesc& desc, const DisentangledAttentionParams& params,
    Stream& stream);  // disentangled_attention_cuda_mma.cu
absl::Status RunDisentangledAttentionCudaPlain(
    const AttentionDesc& desc, const DisentangledAttentionParams& params,
    Stream& stream);  // disentangled_attention_cuda_plain.cu
#endif

namespace {

constexpr char kDisentangled[] = "disentangled_attention";

// What attention's row of that name does not compute either.
const char* RowRefuses(std::string_view name, const AttentionDesc& desc,
                       const DeviceInfo& device) {
  if (desc.selects > 0) return "keys must not be selected";
  if (desc.num_heads != desc.num_kv_heads) {
    return "every head must have keys of its own";
  }
  if (desc.value_dim > 0) return "values must have rows of their own";
  for (const AttentionRow& row : AttentionTable()) {
    if (row.name == name) return row.refuses(desc, device);
  }
  return "attention has no such row";
}

const char* OnCpuRefuses(const AttentionDesc& desc, const DeviceInfo& device) {
  return RowRefuses("cpu_scalar", desc, device);
}

#if INLAY_HAS_CUDA
const char* OnCudaRefuses(const AttentionDesc& desc, const DeviceInfo& device) {
  // Rows of both tables lie in shared memory beside keys and values.
  if (desc.head_dim > 128) return "head_dim must be at most 128";
  return RowRefuses("cuda_plain", desc, device);
}

const char* MatrixUnitsRefuse(const AttentionDesc& desc,
                              const DeviceInfo& device) {
  if (desc.activation != DType::kF16 && desc.activation != DType::kBF16) {
    return "activations must be f16 or bf16";
  }
  if (desc.kv != desc.activation) {
    return "the cache must be of the activations' type";
  }
  if (desc.head_dim != 64) return "head_dim must be 64";
  return OnCudaRefuses(desc, device);
}
#endif

constexpr DisentangledAttentionRow kDisentangledRows[] = {
#if INLAY_HAS_CUDA
    {"cuda_mma", DeviceKind::kCuda, 80, MatrixUnitsRefuse, nullptr,
     RunDisentangledAttentionCudaMma},
    {"cuda_plain", DeviceKind::kCuda, 80, OnCudaRefuses, nullptr,
     RunDisentangledAttentionCudaPlain},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, OnCpuRefuses, nullptr,
     RunDisentangledAttentionCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, OnCpuRefuses, nullptr,
     RunDisentangledAttentionCpuScalar},
};

absl::Status CheckRelativeTable(const AttentionDesc& desc,
                                std::string_view name,
                                const TensorView& table) {
  if (table.empty()) return absl::OkStatus();
  return CheckMatrix(kDisentangled, name, table, table.rows(),
                     int64_t{desc.num_heads} * desc.head_dim, desc.activation);
}

}  // namespace

absl::Span<const DisentangledAttentionRow> DisentangledAttentionTable() {
  return kDisentangledRows;
}

absl::Status ValidateDisentangledAttention(
    const AttentionDesc& desc, const DisentangledAttentionParams& params) {
  INLAY_RETURN_IF_ERROR(ValidateAttention(desc, params.attention));
  if (desc.selects > 0 || desc.value_dim > 0 ||
      params.attention.alibi_slopes != nullptr) {
    return absl::InvalidArgumentError(
        "disentangled_attention: selected keys, values in keys' rows or ALiBi "
        "besides");
  }
  INLAY_RETURN_IF_ERROR(CheckRange(kDisentangled, "num_kv_heads",
                                   desc.num_kv_heads, desc.num_heads,
                                   desc.num_heads));
  const RelativeRows& relative = params.relative;
  if (relative.rows == nullptr ||
      (relative.keys.empty() && relative.queries.empty())) {
    return absl::InvalidArgumentError(
        "disentangled_attention: there are no relative rows");
  }
  if (!relative.keys.empty() && !relative.queries.empty() &&
      relative.keys.rows() != relative.queries.rows()) {
    return absl::InvalidArgumentError(
        "disentangled_attention: tables of different lengths");
  }
  INLAY_RETURN_IF_ERROR(CheckRelativeTable(desc, "keys", relative.keys));
  INLAY_RETURN_IF_ERROR(CheckRelativeTable(desc, "queries", relative.queries));
  constexpr int kMostReach = 1 << 28;
  return CheckRange(kDisentangled, "reach", relative.reach, 0, kMostReach);
}

AttentionPlanShape MakeDisentangledAttentionPlanShape(
    const DisentangledAttentionRow& row, const AttentionDesc& desc,
    int block_size, int num_sms) {
  constexpr AttentionRow kPlainItems = {
      "cuda_plain", DeviceKind::kCuda, 80, nullptr, nullptr, nullptr};
  AttentionPlanShape shape =
      MakeAttentionPlanShape(kPlainItems, desc, block_size, num_sms);
  if (row.name != "cuda_mma") return shape;
  shape.item_rows = kAttentionWideItemRows;
  shape.whole_rows = true;
  // As many CTAs as fit (disentangled_attention_cuda_mma.cu).
  shape.grid = 2 * num_sms;
  return shape;
}

}  // namespace inlay
