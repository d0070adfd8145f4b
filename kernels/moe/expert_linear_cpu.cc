// expert_linear on CPU: gemm's rows, one expert after another, over the rows of
// x that its slots ask for. Those are brought together in the workspace, and
// what comes out is put where the slots are: two copies of activations beside a
// product with a matrix. A single slot needs neither.
#include <cstring>

#include "kernels/moe/expert_linear.h"
#include "memory/device/thread_pool.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr size_t kAlignment = 256;

size_t Aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// An expert has each token at most once, so `rows` tokens are the most.
size_t InputBytes(const ExpertLinearDesc& desc, int64_t rows) {
  return Aligned(
      RowBytes(DType::kF32, static_cast<size_t>(rows * desc.gemm.k)));
}
size_t OutputBytes(const ExpertLinearDesc& desc, int64_t rows) {
  return Aligned(
      RowBytes(DType::kF32, static_cast<size_t>(rows * desc.gemm.n)));
}

struct Workspace {
  Workspace(const ExpertLinearDesc& desc, int64_t rows, void* base)
      : x(MatrixView(base, DType::kF32, rows, desc.gemm.k)),
        y(MatrixView(x.data + InputBytes(desc, rows), DType::kF32, rows,
                     desc.gemm.n)),
        gemm(y.data + OutputBytes(desc, rows)) {}
  TensorView x;
  TensorView y;
  std::byte* gemm;
};

void CopyRows(int64_t rows, size_t bytes, ThreadPool& pool,
              absl::FunctionRef<const std::byte*(int64_t)> from,
              absl::FunctionRef<std::byte*(int64_t)> to) {
  // Less than this costs less than waking a thread.
  constexpr size_t kGrainBytes = 64 << 10;
  pool.ParallelFor(rows, static_cast<int64_t>(kGrainBytes / bytes + 1),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       std::memcpy(to(i), from(i), bytes);
                     }
                   });
}

}  // namespace

const GemmRow* GemmRowNamed(std::string_view name) {
  for (const GemmRow& row : GemmTable()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

size_t ExpertLinearCpuBytes(const GemmRow& row, const ExpertLinearDesc& desc,
                            int64_t max_tokens) {
  return InputBytes(desc, max_tokens) + OutputBytes(desc, max_tokens) +
         (row.workspace_bytes == nullptr
              ? 0
              : row.workspace_bytes(desc.gemm, max_tokens));
}

absl::Status RunExpertLinearCpu(const GemmRow& row,
                                const ExpertLinearDesc& desc,
                                const ExpertLinearParams& params,
                                Stream& stream) {
  ThreadPool& pool = *stream.thread_pool();
  const Workspace space(desc, params.y.rows() / desc.top_k, params.workspace);
  const auto source = [&](int32_t slot) {
    return desc.row_a_slot ? slot : slot / desc.top_k;
  };
  for (int e = 0; e < desc.num_experts; ++e) {
    const int32_t* slots = params.slots + params.offsets[e];
    const int64_t rows = params.offsets[e + 1] - params.offsets[e];
    if (rows == 0) continue;
    GemmParams gemm;
    gemm.w = MatrixView(const_cast<std::byte*>(params.w.each[e]),
                        desc.gemm.weight, desc.gemm.n, desc.gemm.k);
    gemm.bias =
        params.bias == nullptr ? nullptr : params.bias + e * desc.gemm.n;
    gemm.workspace = space.gemm;
    if (rows == 1) {
      gemm.x = params.x.RowSlice(source(slots[0]), 1);
      gemm.y = params.y.RowSlice(slots[0], 1);
      INLAY_RETURN_IF_ERROR(row.run(desc.gemm, gemm, stream));
      continue;
    }
    gemm.x = space.x.RowSlice(0, rows);
    gemm.y = space.y.RowSlice(0, rows);
    CopyRows(
        rows, gemm.x.row_stride_bytes, pool,
        [&](int64_t i) { return params.x.row<std::byte>(source(slots[i])); },
        [&](int64_t i) { return gemm.x.row<std::byte>(i); });
    INLAY_RETURN_IF_ERROR(row.run(desc.gemm, gemm, stream));
    CopyRows(
        rows, gemm.y.row_stride_bytes, pool,
        [&](int64_t i) { return gemm.y.row<std::byte>(i); },
        [&](int64_t i) { return params.y.row<std::byte>(slots[i]); });
  }
  return absl::OkStatus();
}

}  // namespace inlay
