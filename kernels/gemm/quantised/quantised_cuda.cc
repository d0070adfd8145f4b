// How the kernel for Hopper cuts a matrix, and its launch.
#if INLAY_HAS_CUDA

#include "kernels/gemm/quantised/quantised_cuda.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_format.h"
#include "kernels/gemm/quantised/quant_shape.h"
#include "memory/status.h"

namespace inlay {
namespace {

// What a block of Hopper may have, and one of two on an SM.
constexpr int64_t kMostShared = 227 << 10;
constexpr int64_t kHalfShared = 113 << 10;
// Of rings: with more the whole is slower.
constexpr int64_t kMostRing = 110 << 10;
constexpr int kLeastStages = 2;
// Of a block that has an SM for itself, likewise; beside another block it may
// have more, but not that few.
constexpr int kMostStagesAlone = 3;
constexpr int64_t kLeastRingBeside = 48 << 10;
// So that one thread keeps up.
constexpr int64_t kLeastCopy = 4 << 10;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int XStride(int64_t k, int cluster) {
  return static_cast<int>(CeilDiv(QuantUnits(k), cluster)) * kQuantColumns * 2 +
         16;
}

// Of a power of two.
int Log2(int x) { return std::countr_zero(static_cast<unsigned>(x)); }

// Pairs of rows of x that sums are sent of, of four of a tile.
int PartialColumns(int tiles, int64_t rows) {
  return tiles > 1 || rows > 4 ? 4 : rows > 2 ? 2 : 1;
}

// Of all lanes' rings.
int64_t StageBytes(const QuantForm& form, const QuantPlan& plan) {
  return int64_t{2} * plan.stage_units * QuantUnitBytes(form) * plan.warps;
}

int64_t Jobs(int64_t n) { return CeilDiv(CeilDiv(n, kQuantRows), 2); }

}  // namespace

bool FitQuantPlan(const QuantForm& form, int64_t k, int64_t rows,
                  int64_t shared_bytes, QuantPlan& plan) {
  // A lane's jobs have their slots to themselves.
  plan.slots = std::max(2, plan.lanes / plan.cluster);
  plan.stages = 0;
  if (plan.slots > kMostQuantSlots) return false;
  const int64_t slices = plan.cluster * (plan.warps / plan.lanes);
  const int64_t fixed =
      kQuantSharedHead + rows * XStride(k, plan.cluster) +
      plan.slots * slices * plan.tiles * 256 * PartialColumns(plan.tiles, rows);
  const int64_t stage = StageBytes(form, plan);
  const int64_t stages =
      std::min(std::clamp<int64_t>(shared_bytes - fixed, 0, kMostRing) / stage,
               int64_t{kMostQuantStages / plan.lanes});
  if (stages < kLeastStages) return false;
  plan.stages = static_cast<int>(stages);
  plan.shared_bytes = static_cast<size_t>(fixed + stages * stage);
  return true;
}

namespace {

// Two units a stage if there are some more, and beside another block, if a row
// of x can have that; `rows` must fit at least.
bool FitOnSm(const QuantForm& form, int64_t k, int64_t rows, int64_t units,
             QuantPlan& plan) {
  for (const int64_t shared : {kHalfShared, kMostShared}) {
    for (plan.stage_units = units < 4 ? 1 : 2; plan.stage_units > 0;
         --plan.stage_units) {
      if (FitQuantPlan(form, k, 1, shared, plan) &&
          FitQuantPlan(form, k, rows, kMostShared, plan)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

// The cut that takes the fewest turns of a warp: jobs of a lane times units of
// K of a job, and something for each job's sums. Of equals the one with fewer
// slices to add up. Measured (QUANTISED.md): 16 warps are faster where there
// are many jobs, 8 elsewhere.
QuantPlan PlanQuantised(const QuantForm& form, int64_t n, int64_t k, int tiles,
                        int64_t rows, int num_sms) {
  QuantPlan best;
  best.stages = 0;
  int64_t least = 0;
  const int64_t jobs = Jobs(n);
  const int64_t tile_bytes = QuantUnits(k) * QuantUnitBytes(form);
  for (const int cluster : {2, 4, 8}) {
    const int64_t most = std::max(1, num_sms / cluster);
    for (int i = 0; i < 8; ++i) {
      QuantPlan plan;
      plan.tiles = tiles;
      plan.cluster = cluster;
      plan.warps = i % 2 == 0 ? 16 : 8;
      plan.lanes = 1 << i / 2;
      if (plan.warps == 16 && (tiles > 1 || jobs < 4 * num_sms)) continue;
      plan.num_clusters = static_cast<int>(std::min(most, jobs));
      const int64_t shares = plan.warps / plan.lanes;
      const int64_t units = CeilDiv(CeilDiv(QuantUnits(k), cluster), shares);
      if (!FitOnSm(form, k, 8 * tiles, units, plan)) continue;
      const int64_t turn = shares * plan.stage_units * QuantUnitBytes(form);
      if (tiles == 1 && turn < std::min(kLeastCopy, tile_bytes / cluster)) {
        continue;
      }
      const int64_t rounds =
          CeilDiv(CeilDiv(jobs, plan.num_clusters), plan.lanes);
      const int64_t cost = 1000 * rounds * (4 * units + 1) + cluster * shares;
      if (best.stages == 0 || cost < least) {
        best = plan;
        least = cost;
      }
    }
  }
  if (best.stages == 0) return best;
  // Fewer rows leave room for more stages.
  const int64_t stage = StageBytes(form, best);
  if (!FitQuantPlan(form, k, rows, kHalfShared, best) ||
      best.stages * stage < kLeastRingBeside) {
    FitQuantPlan(form, k, rows, kMostShared, best);
    const int over = std::max(0, best.stages - kMostStagesAlone);
    best.stages -= over;
    best.shared_bytes -= static_cast<size_t>(over * stage);
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
  shape.x_tiles = plan.tiles;
  shape.tiles = static_cast<int>(CeilDiv(desc.n, kQuantRows));
  shape.jobs = static_cast<int>(Jobs(desc.n));
  shape.units = static_cast<int>(QuantUnits(desc.k));
  shape.unit_bytes = QuantUnitBytes(form);
  shape.cluster = plan.cluster;
  shape.log_cluster = Log2(plan.cluster);
  shape.num_clusters = plan.num_clusters;
  shape.warps = plan.warps;
  shape.lanes = plan.lanes;
  shape.log_lanes = Log2(plan.lanes);
  shape.stage_units = plan.stage_units;
  shape.turn_units = plan.stage_units * (plan.warps / plan.lanes);
  shape.stage_bytes = 2 * shape.turn_units * shape.unit_bytes;
  shape.stages = plan.stages;
  shape.slots = plan.slots;
  shape.log_slots = Log2(plan.slots);
  shape.columns = PartialColumns(plan.tiles, params.x.rows());
  shape.x_stride = XStride(desc.k, plan.cluster);
  shape.copies_x = params.permutation == nullptr &&
                   params.x.row_stride_bytes % 16 == 0 &&
                   reinterpret_cast<uintptr_t>(params.x.data) % 16 == 0;
  shape.narrow = desc.output != DType::kF32;
  shape.shared_bytes = plan.shared_bytes;
  switch (form.codes) {
    case QuantCodes::kLinear4:
      return form.group == 16 ? LaunchLinear4Of16(params, form, shape, stream)
                              : LaunchLinear4(params, form, shape, stream);
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
