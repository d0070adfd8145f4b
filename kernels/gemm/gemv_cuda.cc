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

// Of x and w on 16 bytes, of one 16-bit type.
bool IsForTensorCores(const GemmDesc& desc, const TensorView& x,
                      const TensorView& w) {
  return desc.weight != DType::kF32 && desc.k % 8 == 0 && IsAligned(x) &&
         IsAligned(w);
}

// Rows of x that a launch of the kernel before Hopper takes; 0: it does not
// serve.
int64_t RingGemvRows(const GemmDesc& desc, const GemmParams& params) {
  if (desc.activation != desc.weight ||
      !IsForTensorCores(desc, params.x, params.w)) {
    return 0;
  }
  int64_t m = kGemvRows;
  while (m > 0 && RingGemvSharedBytes(desc.k, m) > kLeastShared) m /= 2;
  return m;
}

}  // namespace

// Chosen by measurement on an H200 (CUDA.md): two blocks share K while eight
// rows of x fit beside the ring; more consumers where K is long. Blocks take
// more than half of an SM's shared memory, so that no two of them meet there:
// the SM that had two of one kernel would be the last to end. What is loaded at
// once just covers the memory's latency: more is slower, up to 7 %. The ring is
// deeper, for what can be loaded while the kernel before ends.
GemvPlan PlanGemv(int64_t n, int64_t k, int num_sms) {
  constexpr int64_t kColumnsPerBlock = 8192;
  constexpr int64_t kSmallBytes = int64_t{64} << 20;
  GemvPlan plan;
  while (plan.cluster < 8 && k > kColumnsPerBlock * plan.cluster) {
    plan.cluster *= 2;
  }
  plan.consumers = k > kColumnsPerBlock ? 8 : 4;
  const int64_t tiles = (n + 15) / 16;
  const int64_t most = std::max(1, num_sms / plan.cluster);
  plan.num_clusters = static_cast<int>(std::min(most, tiles));
  plan.shared_bytes = 200 << 10;
  plan.in_flight = 2 * n * k <= kSmallBytes ? 8 : 6;
  return plan;
}

int64_t BulkGemvRows(const GemmDesc& desc, const TensorView& x,
                     const TensorView& w, const CudaStream& stream) {
  if (stream.sm() != kBulkSm || desc.k % kBulkColumns != 0 ||
      !IsForTensorCores(desc, x, w)) {
    return 0;
  }
  const GemvPlan plan = PlanGemv(desc.n, desc.k, stream.num_sms());
  int64_t m = kGemvRows;
  while (m > 0 && BulkGemvStages(desc, m, plan) < kLeastStages) m /= 2;
  return m;
}

namespace {

// What a launch takes.
struct GemvPart {
  bool bulk = false;
  int64_t rows = 0;  // of x; 0: none of the kernels on tensor cores serves
};

GemvPart PartOf(const GemmDesc& desc, const GemmParams& params,
                const CudaStream& stream) {
  if (desc.activation == desc.weight) {
    const int64_t rows = BulkGemvRows(desc, params.x, params.w, stream);
    if (rows > 0) return {true, rows};
  }
  return {false, RingGemvRows(desc, params)};
}

}  // namespace

bool GemvReadsOnce(const GemmDesc& desc, const GemmParams& params,
                   const CudaStream& stream) {
  const GemvPart part = PartOf(desc, params, stream);
  return part.rows == 0 || params.x.rows() <= part.rows;
}

absl::Status RunGemv(const GemmDesc& desc, const GemmParams& params,
                     CudaStream& stream) {
  const auto [bulk, most] = PartOf(desc, params, stream);
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
    INLAY_RETURN_IF_ERROR(
        bulk ? RunBulkGemv(desc, part,
                           PlanGemv(desc.n, desc.k, stream.num_sms()), {},
                           stream)
             : RunRingGemv(desc, part, stream));
  }
  return absl::OkStatus();
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
