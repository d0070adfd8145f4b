#include "kernels/moe/routing.h"

#include "kernels/validate.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::Status RunRoutingCpu(const RoutingDesc& desc, const RoutingParams& params,
                           Stream& stream);  // routing_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunRoutingCuda(const RoutingDesc& desc,
                            const RoutingParams& params,
                            Stream& stream);  // routing_cuda.cu
#endif

namespace {

const char* Refuses(const RoutingDesc& desc, const DeviceInfo&) {
  return ValidateRouting(desc).ok() ? nullptr
                                    : "numbers of experts are out of range";
}

constexpr RoutingRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, Refuses, nullptr, RunRoutingCuda},
#endif
    {"cpu_scalar", DeviceKind::kCpu, 0, Refuses, nullptr, RunRoutingCpu},
};

}  // namespace

absl::Span<const RoutingRow> RoutingTable() { return kRows; }

absl::Status ValidateRouting(const RoutingDesc& desc) {
  constexpr char kOp[] = "moe_routing";
  INLAY_RETURN_IF_ERROR(
      CheckRange(kOp, "num_experts", desc.num_experts, 1, kMaxExperts));
  INLAY_RETURN_IF_ERROR(
      CheckRange(kOp, "num_groups", desc.num_groups, 1, desc.num_experts));
  if (desc.num_experts % desc.num_groups != 0) {
    return absl::InvalidArgumentError(
        FormattedString("%s: %d experts in %d groups; groups must be of equal "
                        "size",
                        kOp, desc.num_experts, desc.num_groups));
  }
  if (desc.score == RoutingScore::kSparseMixer &&
      (desc.num_groups != 1 || desc.hashed || desc.scales_experts ||
       desc.normalised || !(desc.threshold >= 0.0f))) {
    return absl::InvalidArgumentError(
        FormattedString("%s: SparseMixer takes a threshold of at least 0, and "
                        "no groups, tables, scales or sums of 1",
                        kOp));
  }
  INLAY_RETURN_IF_ERROR(
      CheckRange(kOp, "top_groups", desc.top_groups, 1, desc.num_groups));
  const int group_size = desc.num_experts / desc.num_groups;
  const int most = desc.top_groups * group_size;
  return CheckRange(kOp, "top_k", desc.top_k, 1,
                    most < kMaxExpertsPerToken ? most : kMaxExpertsPerToken);
}

}  // namespace inlay
