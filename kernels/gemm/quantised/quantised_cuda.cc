// How the kernel for Hopper cuts a matrix, and its launch.
#if INLAY_HAS_CUDA

#include "kernels/gemm/quantised/quantised_cuda.h"

#include <algorithm>
#include <bit>

#include "kernels/gemm/quantised/quant_shape.h"
#include "memory/status.h"

namespace inlay {
namespace {

// What a block of Hopper may have.
constexpr int64_t kMostShared = 227 << 10;
// Of rings: two stages of two units of 4 bits, or of one of 8 bits. Measured:
// two units at a time are up to 20 % faster than one; deeper rings no faster.
constexpr int64_t kUsualRing = 84 << 10;
constexpr int kMostStageUnits = 2;
constexpr int kLeastStages = 2;
// So that no two blocks meet on an SM, which would be the last to end.
constexpr int64_t kLeastShared = 120 << 10;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Units of K that a block has.
int64_t XUnits(int64_t k, const QuantPlan& plan) {
  return CeilDiv(QuantUnits(k), plan.cluster);
}

int XStride(int64_t k, const QuantPlan& plan) {
  return static_cast<int>(XUnits(k, plan)) * kQuantColumns * 2 + 16;
}

// Of a power of two.
int Log2(int x) { return std::countr_zero(static_cast<unsigned>(x)); }

int64_t Jobs(int64_t n) { return CeilDiv(CeilDiv(n, kQuantRows), 2); }

// Sets slots, stages and shared_bytes; false: it does not fit.
bool FitQuantPlan(const QuantForm& form, int64_t k, QuantPlan& plan) {
  // A lane's jobs have their slots to themselves.
  plan.slots = std::max(2, plan.lanes / plan.cluster);
  if (plan.slots > kMostQuantSlots) {
    plan.stages = 0;
    return false;
  }
  const int64_t slices = plan.cluster * (plan.warps / plan.lanes);
  const int64_t fixed = kQuantSharedHead + kMostQuantRows * XStride(k, plan) +
                        plan.slots * slices * 1024;
  const int64_t stage =
      2 * plan.stage_units * QuantUnitBytes(form) * plan.warps;
  const int64_t room = std::min(kMostShared - fixed, kUsualRing);
  plan.stages = static_cast<int>(std::min<int64_t>(
      std::max<int64_t>(room, 0) / stage, kMostQuantStages / plan.warps));
  plan.shared_bytes =
      static_cast<size_t>(std::max(fixed + plan.stages * stage, kLeastShared));
  if (plan.stages < kLeastStages) plan.stages = 0;
  return plan.stages > 0;
}

// What it costs, but for what does not fit: turns of a warp, that is jobs of a
// lane times units of K of a job, in quarters; something for each job's sums.
// Sets stage_units and num_clusters.
int64_t CostOfQuantPlan(const QuantForm& form, int64_t n, int64_t k,
                        int num_sms, QuantPlan& plan) {
  const int64_t jobs = Jobs(n);
  const int64_t shares = plan.warps / plan.lanes;
  const int64_t units = CeilDiv(XUnits(k, plan), shares);
  plan.stage_units =
      static_cast<int>(std::min<int64_t>(units, kMostStageUnits));
  while (!FitQuantPlan(form, k, plan) && plan.stage_units > 1) {
    --plan.stage_units;
  }
  plan.num_clusters = static_cast<int>(std::min(
      ClustersAtOnce(plan.cluster, num_sms), CeilDiv(jobs, plan.lanes)));
  const int64_t rounds = CeilDiv(jobs, plan.num_clusters * plan.lanes);
  return 1000 * rounds * (4 * units + 1) + plan.cluster * shares;
}

}  // namespace

int64_t ClustersAtOnce(int cluster, int num_sms) {
  const int64_t sms = cluster == 8   ? num_sms * 3 / 4
                      : cluster == 4 ? num_sms * 7 / 8
                                     : num_sms;
  return std::max<int64_t>(1, sms / cluster);
}

// The cheapest cut; of equals the one with fewer slices to add up.
QuantPlan PlanQuantised(const QuantForm& form, int64_t n, int64_t k,
                        int num_sms) {
  QuantPlan best;
  best.stages = 0;
  int64_t least = 0;
  for (const int cluster : {2, 4, 8}) {
    for (int lanes = 1; lanes <= best.warps; lanes *= 2) {
      QuantPlan plan;
      plan.cluster = cluster;
      plan.lanes = lanes;
      const int64_t cost = CostOfQuantPlan(form, n, k, num_sms, plan);
      if (plan.stages == 0) continue;
      if (best.stages == 0 || cost < least) {
        best = plan;
        least = cost;
      }
    }
  }
  return best;
}

absl::Status RunQuantisedSm90(const GemmDesc& desc, const GemmParams& params,
                              const QuantForm& form, const QuantPlan& plan,
                              CudaStream& stream) {
  QuantShape shape;
  shape.n = desc.n;
  shape.k = desc.k;
  shape.tile_bytes = QuantTileBytes(form, desc.k);
  shape.m = static_cast<int>(params.x.rows());
  shape.tiles = static_cast<int>(CeilDiv(desc.n, kQuantRows));
  shape.jobs = static_cast<int>(Jobs(desc.n));
  shape.units = static_cast<int>(QuantUnits(desc.k));
  shape.unit_bytes = QuantUnitBytes(form);
  shape.cluster = plan.cluster;
  shape.log_cluster = Log2(plan.cluster);
  shape.num_clusters = plan.num_clusters;
  shape.warps = plan.warps;
  shape.log_warps = Log2(plan.warps);
  shape.lanes = plan.lanes;
  shape.log_lanes = Log2(plan.lanes);
  shape.stage_units = plan.stage_units;
  shape.stage_bytes = 2 * plan.stage_units * shape.unit_bytes;
  shape.stages = plan.stages;
  shape.slots = plan.slots;
  shape.log_slots = Log2(plan.slots);
  shape.x_stride = XStride(desc.k, plan);
  shape.copies_x = params.permutation == nullptr &&
                   params.x.row_stride_bytes % 16 == 0 &&
                   reinterpret_cast<uintptr_t>(params.x.data) % 16 == 0;
  shape.narrow = desc.output != DType::kF32;
  shape.shared_bytes = plan.shared_bytes;
  switch (form.codes) {
    case QuantCodes::kLinear4:
      return LaunchLinear4(params, form, shape, stream);
    case QuantCodes::kLinear6:
      return LaunchLinear6(params, form, shape, stream);
    case QuantCodes::kTable4:
      return LaunchTable4(params, form, shape, stream);
    case QuantCodes::kInt8:
      return LaunchInt8(params, form, shape, stream);
    default:
      return LaunchE4M3(params, form, shape, stream);
  }
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
