// How the kernel for up to 32 rows on Hopper cuts a matrix, and its launch.
#if INLAY_HAS_CUDA

#include "kernels/gemm/quantised/streamed_cuda.h"

#include <algorithm>
#include <bit>

#include "kernels/cuda_tensor_map.h"
#include "kernels/gemm/quantised/quantised_cuda.h"
#include "kernels/gemm/quantised/streamed_shape.h"
#include "kernels/gemm/quantised/wide_cuda.h"
#include "memory/status.h"

namespace inlay {
namespace {

// What a block of Hopper may have.
constexpr int64_t kMostShared = 227 << 10;
// Of weights: one after another takes as long as this many bytes from memory.
constexpr int64_t kLeastCopy = 8 << 10;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t TilesOfW(int64_t n) { return CeilDiv(n, kQuantRows); }
// What jobs share out: tiles, or gates' with their ups'.
int64_t Slots(int64_t n, const StreamedPlan& plan) {
  return plan.gated ? TilesOfW(n) / 2 : TilesOfW(n);
}
int64_t TilesOfSlot(const StreamedPlan& plan) { return plan.gated ? 2 : 1; }
int64_t JobSlots(int64_t n, const StreamedPlan& plan) {
  return CeilDiv(Slots(n, plan), plan.jobs);
}
int64_t JobTiles(int64_t n, const StreamedPlan& plan) {
  return JobSlots(n, plan) * TilesOfSlot(plan);
}
int64_t Pairs(int64_t n, const StreamedPlan& plan) {
  return CeilDiv(JobTiles(n, plan), 2);
}
int64_t Groups(int64_t k, const StreamedPlan& plan) {
  return CeilDiv(QuantUnits(k), plan.place_units);
}
// Of a group.
int64_t XBytes(const StreamedPlan& plan) {
  return int64_t{plan.x_tiles} * plan.place_units * kStreamedXBytes;
}
int64_t WBytes(const QuantForm& form, int64_t n, const StreamedPlan& plan) {
  return JobTiles(n, plan) * plan.place_units * QuantUnitBytes(form);
}
// x lies on multiples of 1024 bytes.
int64_t PlaceBytes(const QuantForm& form, int64_t n, const StreamedPlan& plan) {
  return CeilDiv(XBytes(plan) + WBytes(form, n, plan), 1024) * 1024;
}
int64_t PartialBytes(int64_t n, const StreamedPlan& plan) {
  return CeilDiv(Pairs(n, plan), plan.cluster) * plan.cluster * plan.shares *
         plan.x_tiles * 1024;
}

absl::StatusOr<CUtensorMap> MapOfW(const GemmParams& params,
                                   const StreamedShape& shape, int slots) {
  // Halves of units, since a box has at most 256 elements a side.
  const auto half = static_cast<cuuint32_t>(shape.unit_bytes / 2);
  const auto units = static_cast<cuuint64_t>(QuantUnits(params.w.cols()));
  const auto all = static_cast<cuuint64_t>(shape.slots);
  const auto tile = static_cast<cuuint64_t>(shape.tile_bytes);
  const cuuint32_t halves = shape.up > 0 ? 2 : 1;
  return EncodeTensorMap(
      "packed weights", params.w.data + kQuantHeadBytes,
      CU_TENSOR_MAP_DATA_TYPE_FLOAT64, CU_TENSOR_MAP_SWIZZLE_NONE,
      {4,
       {half / 8, 2 * units, all, halves},
       {half, tile, all * tile},
       {half / 8, static_cast<cuuint32_t>(2 * shape.place_units),
        static_cast<cuuint32_t>(slots), halves}});
}

absl::StatusOr<StreamedMaps> MapsOf(const GemmParams& params, int x_tiles,
                                    const StreamedShape& shape) {
  const TensorView& x = params.x;
  StreamedMaps maps;
  INLAY_ASSIGN_OR_RETURN(
      maps.x,
      EncodeTensorMap("x", x.data, CU_TENSOR_MAP_DATA_TYPE_UINT16,
                      CU_TENSOR_MAP_SWIZZLE_128B,
                      {3,
                       {64, static_cast<cuuint64_t>(x.rows()),
                        static_cast<cuuint64_t>(x.cols() / 64)},
                       {x.row_stride_bytes, 128},
                       {64, static_cast<cuuint32_t>(8 * x_tiles),
                        static_cast<cuuint32_t>(2 * shape.place_units)}}));
  for (int i = 0; i < 2; ++i) {
    INLAY_ASSIGN_OR_RETURN(
        maps.w[i], MapOfW(params, shape, std::max(1, shape.job_slots - i)));
  }
  return maps;
}

// What plans take, in nanoseconds and bytes a nanosecond.
struct CostFit {
  int64_t all_bytes;    // of weights, for all blocks
  int64_t block_bytes;  // for one
  int64_t x_bytes;      // from the level-2 cache, for all
  int64_t copy;         // each copy besides
  int64_t step;         // a share's group
  int64_t latency;      // .. and each of its units at least
  int64_t issue;        // .. for each warp of the block
  int64_t hidden;       // per cent of what memory and warps need, the lesser
  int64_t waits[2];     // per cent more where a share has one place, or two
  int64_t end[3];       // of one block, of two and four that share K
  int64_t share[2];     // of each share's sums: alone, and for each block
};
// Up to 16 rows what was measured on an H100; 32 rows what all plans of eight
// layers in u4_g128, q4_k and q8_0 took on an H200 (bench_cuda
// linear_quantised_plans).
constexpr CostFit FitOf(int x_tiles) {
  return x_tiles <= 2
             ? CostFit{4200,
                       55,
                       11000,
                       0,
                       230,
                       0,
                       50 + 20 * x_tiles,
                       25,
                       {25, 5},
                       {400, 700, 1500},
                       {0, 5 * x_tiles}}
             : CostFit{3060,    93,  15400, 22,        630,
                       1130,    110, 30,    {120, 16}, {770, 300, 1070},
                       {22, 48}};
}

// Nanoseconds that a plan should take: what memory or warps need, whichever is
// more, a part of the other, and an end. Only their order matters.
int64_t CostOf(const QuantForm& form, int64_t n, int64_t k,
               const StreamedPlan& plan) {
  const CostFit fit = FitOf(plan.x_tiles);
  const int64_t groups = CeilDiv(Groups(k, plan), plan.cluster);
  const int64_t blocks = int64_t{plan.jobs} / plan.rounds * plan.cluster;
  const int64_t copies = plan.rounds * groups;
  const int64_t w = copies * WBytes(form, n, plan);
  const int64_t memory =
      w / std::clamp<int64_t>(fit.all_bytes / blocks, 1, fit.block_bytes) +
      copies * XBytes(plan) * blocks / fit.x_bytes + copies * fit.copy;
  const int64_t warps = Pairs(n, plan) * plan.shares;
  const int64_t multiply =
      plan.rounds * CeilDiv(groups, plan.shares) *
      (fit.step + plan.place_units * std::max(fit.latency, warps * fit.issue));
  const int64_t waits = plan.places == plan.shares       ? fit.waits[0]
                        : plan.places == 2 * plan.shares ? fit.waits[1]
                                                         : 0;
  return std::max(memory, multiply) +
         std::min(memory, multiply) * fit.hidden / 100 +
         multiply * waits / 100 + fit.end[plan.cluster / 2] * plan.rounds +
         plan.shares * (fit.share[0] + fit.share[1] * plan.cluster);
}

}  // namespace

bool FitStreamedPlan(const QuantForm& form, int64_t n, int64_t k, int num_sms,
                     StreamedPlan& plan) {
  plan.places = 0;
  const int64_t slots = Slots(n, plan);
  const int64_t clusters = ClustersAtOnce(plan.cluster, num_sms);
  plan.rounds = static_cast<int>(
      CeilDiv(slots * TilesOfSlot(plan), clusters * kMostStreamedTiles));
  if (plan.cluster > 1 && (plan.rounds > 1 || Groups(k, plan) < plan.cluster)) {
    return false;
  }
  plan.jobs = static_cast<int>(std::min(slots, clusters * plan.rounds));
  plan.shares = static_cast<int>(std::clamp<int64_t>(
      std::min<int64_t>(plan.shares, Groups(k, plan) / plan.cluster), 1,
      kMostStreamedWarps / Pairs(n, plan)));
  const int64_t partials = PartialBytes(n, plan);
  const int64_t room = kMostShared - kStreamedHead - partials;
  const int64_t place = PlaceBytes(form, n, plan);
  plan.places = static_cast<int>(
      std::clamp<int64_t>(room / place, 0, kMostStreamedPlaces));
  // A place is always of one share, whose warps so never wait for what comes
  // after what others have not waited for: barriers tell two phases apart.
  plan.places -= plan.places % plan.shares;
  if (plan.places < 2) plan.places = 0;
  plan.shared_bytes =
      static_cast<size_t>(kStreamedHead + plan.places * place + partials);
  return plan.places > 0;
}

namespace {

// plan.shares as they are, or false.
bool FitAsItIs(const QuantForm& form, int64_t n, int64_t k, int num_sms,
               StreamedPlan& plan) {
  const int shares = plan.shares;
  return FitStreamedPlan(form, n, k, num_sms, plan) && plan.shares == shares;
}

// The cheapest of all plans for `x_tiles` of those that `serves`.
template <typename Serves>
StreamedPlan BestPlan(const QuantForm& form, int64_t n, int64_t k, int x_tiles,
                      int num_sms, bool gated, const Serves& serves) {
  StreamedPlan best;
  int64_t least = 0;
  for (const int cluster : {1, 2, 4}) {
    for (int shares = 1; shares <= kMostStreamedWarps; ++shares) {
      StreamedPlan plan;
      plan.gated = gated;
      plan.x_tiles = x_tiles;
      plan.cluster = cluster;
      plan.shares = shares;
      if (!FitStreamedPlan(form, n, k, num_sms, plan)) continue;
      // With 32 rows of x two units would leave too few places.
      if (x_tiles <= 2 && WBytes(form, n, plan) < kLeastCopy) {
        plan.place_units = 2;
        plan.shares = shares;
        if (!FitStreamedPlan(form, n, k, num_sms, plan)) continue;
      }
      if (!serves(plan)) continue;
      const int64_t cost = CostOf(form, n, k, plan);
      if (best.places == 0 || cost < least) {
        best = plan;
        least = cost;
      }
    }
  }
  return best;
}

}  // namespace

StreamedPlan PlanStreamed(const QuantForm& form, int64_t n, int64_t k,
                          int x_tiles, int num_sms, bool gated) {
  return BestPlan(form, n, k, x_tiles, num_sms, gated,
                  [](const StreamedPlan&) { return true; });
}

bool PlanStreamedInOneOrder(const QuantForm& form, int64_t n, int64_t k,
                            int num_sms, StreamedPlans& plans) {
  if (WideRoundsTooMuch(form)) return false;
  const auto with_tiles = [&](StreamedPlan plan, int x_tiles) {
    plan.x_tiles = x_tiles;
    plan.rounds_weights = true;
    return FitAsItIs(form, n, k, num_sms, plan) ? plan : StreamedPlan{};
  };
  const StreamedPlan few =
      BestPlan(form, n, k, 1, num_sms, false, [&](const StreamedPlan& plan) {
        return with_tiles(plan, 2).places > 0 && with_tiles(plan, 4).places > 0;
      });
  for (int i = 0; i < 3; ++i) plans.plans[i] = with_tiles(few, 1 << i);
  return few.places > 0;
}

int StreamedTilesOfX(const QuantForm& form, int64_t rows) {
  return rows <= 8 ? 1 : rows <= 16 || WideRoundsTooMuch(form) ? 2 : 4;
}

bool StreamedTakesColumns(int64_t k) { return k % 64 == 0; }

absl::Status RunQuantisedStreamed(const GemmDesc& desc,
                                  const GemmParams& params,
                                  const QuantForm& form,
                                  const StreamedPlan& plan, CudaStream& stream,
                                  Activation function) {
  StreamedShape shape = {};
  shape.n = plan.gated ? desc.n / 2 : desc.n;
  shape.tile_bytes = QuantTileBytes(form, desc.k);
  shape.m = static_cast<int>(params.x.rows());
  shape.slots = static_cast<int>(Slots(desc.n, plan));
  shape.up = plan.gated ? shape.slots : 0;
  shape.function = function;
  shape.groups = static_cast<int>(Groups(desc.k, plan));
  shape.place_units = plan.place_units;
  shape.unit_bytes = QuantUnitBytes(form);
  shape.log_cluster = std::countr_zero(static_cast<unsigned>(plan.cluster));
  shape.jobs = plan.jobs;
  shape.rounds = plan.rounds;
  shape.job_slots = static_cast<int>(JobSlots(desc.n, plan));
  shape.shares = plan.shares;
  shape.warps = static_cast<int>(Pairs(desc.n, plan)) * plan.shares;
  shape.places = plan.places;
  shape.x_bytes = static_cast<int>(XBytes(plan));
  shape.place_bytes = static_cast<int>(PlaceBytes(form, desc.n, plan));
  shape.ring = kStreamedHead;
  shape.partials =
      static_cast<uint32_t>(kStreamedHead + plan.places * shape.place_bytes);
  shape.narrow = desc.output != DType::kF32;
  shape.rounds_weights = plan.rounds_weights;
  shape.shared_bytes = plan.shared_bytes;
  INLAY_ASSIGN_OR_RETURN(const StreamedMaps maps,
                         MapsOf(params, plan.x_tiles, shape));
  const auto launch = form.codes == QuantCodes::kLinear4 ? LaunchStreamedLinear4
                      : form.codes == QuantCodes::kLinear6
                          ? LaunchStreamedLinear6
                      : form.codes == QuantCodes::kTable4 ? LaunchStreamedTable4
                      : form.codes == QuantCodes::kInt8   ? LaunchStreamedInt8
                                                          : LaunchStreamedE4M3;
  return launch(params, maps, form, plan.x_tiles, shape, stream);
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
