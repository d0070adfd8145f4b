// Which kernel serves a linear layer of few rows, and how it cuts the matrix.
#if INLAY_HAS_CUDA

#include "kernels/gemm/gemv_cuda.h"

#include <algorithm>

#include "memory/status.h"

namespace inlay {
namespace {

// Rows on 16 bytes.
bool IsAligned(const TensorView& view) {
  return view.row_stride_bytes % 16 == 0 &&
         reinterpret_cast<uintptr_t>(view.data) % 16 == 0;
}

// The only one that gemv_sm90.cu has code for.
constexpr int kBulkSm = 90;
// Shared memory a block may have before Hopper: of compute capability 8.6.
constexpr size_t kLeastShared = 99 << 10;
// Fewer stages than these do not cover the memory's latency.
constexpr int kLeastStages = 3;

// Rows of x that a launch of the tensor-core kernels takes; 0: they do not
// serve.
int64_t RowsPerLaunch(const GemmDesc& desc, const GemmParams& params,
                      const GemvPlan& plan, int sm) {
  if (desc.weight == DType::kF32 || desc.activation != desc.weight ||
      desc.k % 8 != 0 || !IsAligned(params.x) || !IsAligned(params.w)) {
    return 0;
  }
  for (int64_t m = kGemvRows; m > 0; m /= 2) {
    const bool fits = sm == kBulkSm
                          ? BulkGemvStages(desc, m, plan) >= kLeastStages
                          : RingGemvSharedBytes(desc.k, m) <= kLeastShared;
    if (fits) return m;
  }
  return 0;
}

}  // namespace

// Chosen by measurement on an H200 (CUDA.md): two blocks share K while eight
// rows of x fit beside the ring; more consumers where K is long. A deep ring
// makes large matrices slower (a seventh at 20 stages). Where the matrix is
// small, half of an SM's shared memory, less what the system takes for a block,
// so that the next kernel fits beside this one.
GemvPlan PlanGemv(int64_t n, int64_t k, int64_t m, int num_sms) {
  constexpr int64_t kColumnsPerBlock = 8192;
  constexpr int64_t kSmallBytes = int64_t{64} << 20;
  constexpr int64_t kLargeBytes = int64_t{160} << 20;
  GemvPlan plan;
  while (plan.cluster < 8 && k > kColumnsPerBlock * plan.cluster) {
    plan.cluster *= 2;
  }
  plan.consumers = k > kColumnsPerBlock ? 8 : 4;
  const int64_t tiles = (n + 15) / 16;
  const int64_t most = std::max(1, num_sms / plan.cluster);
  plan.num_clusters = static_cast<int>(std::min(most, tiles));
  if (2 * n * k > kLargeBytes) plan.most_stages = 6;
  plan.shared_bytes = (2 * n * k <= kSmallBytes && m <= 4 ? 113 : 200) << 10;
  return plan;
}

absl::Status RunGemv(const GemmDesc& desc, const GemmParams& params,
                     CudaStream& stream) {
  const auto plan_for = [&](int64_t m) {
    return PlanGemv(desc.n, desc.k, m, stream.num_sms());
  };
  const int64_t most =
      RowsPerLaunch(desc, params, plan_for(kGemvRows), stream.sm());
  if (most == 0) return RunGemvPlain(desc, params, stream);
  const int64_t rows = params.x.rows();
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t m = std::min(most, rows - first);
    GemmParams part = params;
    part.x = params.x.RowSlice(first, m);
    part.y = params.y.RowSlice(first, m);
    if (!params.residual.empty()) {
      part.residual = params.residual.RowSlice(first, m);
    }
    INLAY_RETURN_IF_ERROR(stream.sm() == kBulkSm
                              ? RunBulkGemv(desc, part, plan_for(m), stream)
                              : RunRingGemv(desc, part, stream));
  }
  return absl::OkStatus();
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
