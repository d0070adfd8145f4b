#include "kernels/moe/router.h"

#include <algorithm>

#include "kernels/moe/router_shape.h"

namespace inlay {

#if INLAY_HAS_CUDA
absl::Status RunMoeRouterSm90(const MoeRouterDesc& desc,
                              const MoeRouterParams& params,
                              Stream& stream);  // router_sm90.cu

namespace {

int64_t RowsThatFit(const MoeRouterDesc& desc) {
  int64_t tokens = kMostRouterTokens;
  while (RouterShapeOf(desc, tokens).shared_bytes > kMostRouterShared) {
    tokens /= 2;
    if (tokens < 8) return 0;
  }
  return tokens;
}

const char* Sm90Refuses(const MoeRouterDesc& desc, const DeviceInfo& device) {
  if (device.sm != 90) return "written for compute capability 9.0";
  if (device.num_sms < kRouterBlocks) return "too few multiprocessors";
  const RoutingDesc& routing = desc.routing;
  if (!ValidateRouting(routing).ok()) {
    return "numbers of experts are out of range";
  }
  if (routing.hashed) return "experts are chosen by a table";
  if (routing.score == RoutingScore::kSparseMixer) return "SparseMixer";
  // Logits stand for their scores, of which the largest does.
  if (routing.top_groups < routing.num_groups &&
      (routing.num_groups > kMostRouterGroups ||
       (routing.score == RoutingScore::kSoftmax &&
        routing.group_score == GroupScore::kTopTwo))) {
    return "such groups of experts";
  }
  if (routing.num_experts > MostRouterExperts(kRouterStreamBlocks) ||
      routing.top_k > kMostRouterTopK) {
    return "so many experts";
  }
  if (desc.activation != DType::kBF16 && desc.activation != DType::kF16) {
    return "activations are not of 16 bits";
  }
  if (desc.weight != desc.activation &&
      (desc.weight != DType::kF32 || desc.activation != DType::kBF16)) {
    return "weights are neither of the activations' type nor, beside bf16, f32";
  }
  if (desc.width % kRouterStep != 0 ||
      desc.width > MostRouterWidth(kRouterStreamBlocks)) {
    return "such a width";
  }
  if (RouterStreams(desc) && device.num_sms < kRouterStreamSms) {
    return "too few multiprocessors";
  }
  return RowsThatFit(desc) == 0 ? "weights do not fit shared memory" : nullptr;
}

constexpr MoeRouterRow kRows[] = {{"cuda_sm90", DeviceKind::kCuda, 90,
                                   Sm90Refuses, nullptr, RunMoeRouterSm90}};

}  // namespace

absl::Span<const MoeRouterRow> MoeRouterTable() { return kRows; }
int64_t MoeRouterTokens(const MoeRouterDesc& desc) { return RowsThatFit(desc); }
int64_t MoeRouterTokensThatPay(const MoeRouterDesc& desc) {
  // Measured (README.md): in float32 always, for gemm's product takes long; in
  // 16 bits by the number of experts.
  const int64_t tokens = RowsThatFit(desc);
  const int experts = desc.routing.num_experts;
  if (desc.weight == DType::kF32 || experts <= 32) return tokens;
  return std::min<int64_t>(tokens, experts <= 384 ? 32 : 16);
}
#else
absl::Span<const MoeRouterRow> MoeRouterTable() { return {}; }
int64_t MoeRouterTokens(const MoeRouterDesc&) { return 0; }
int64_t MoeRouterTokensThatPay(const MoeRouterDesc&) { return 0; }
#endif

}  // namespace inlay
