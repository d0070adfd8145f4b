// How the kernel for many rows on Hopper cuts a matrix, and its launch.
#if INLAY_HAS_CUDA

#include "kernels/gemm/quantised/wide_cuda.h"

#include <algorithm>
#include <bit>

#include "absl/status/statusor.h"
#include "kernels/cuda_tensor_map.h"
#include "kernels/gemm/quantised/quantised_cuda.h"
#include "kernels/gemm/quantised/wide_shape.h"
#include "memory/status.h"

namespace inlay {
namespace {

// What a block of Hopper may have.
constexpr int64_t kMostShared = 227 << 10;
// Of each ring: more is not faster.
constexpr int kMostUsedStages = 8;
// With more rows a group on average blocks take 128 of them.
constexpr int64_t kWideGroupRows = 64;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int TilesOf(const WidePlan& plan) {
  return plan.codes            ? kWideCodesTiles
         : plan.columns == 256 ? kWideFewTiles
                               : kWideTiles;
}
int64_t XStageBytes(const WidePlan& plan) {
  return plan.columns * int64_t{plan.codes ? 128 : 256};
}
// Of the ring of x's scales.
int64_t XScaleBytes(const WidePlan& plan) {
  return plan.codes ? plan.columns * int64_t{sizeof(float)} : 0;
}
int64_t WStageBytes(const QuantForm& form, const WidePlan& plan) {
  return int64_t{TilesOf(plan)} * QuantUnitBytes(form);
}
// Of `rows` rows of x.
int64_t PartialBytes(int rows, const WidePlan& plan) {
  return CeilDiv(int64_t{rows} * WideStride(TilesOf(plan)) * 4, 1024) * 1024;
}
int64_t BlocksN(int64_t n, const WidePlan& plan) {
  return CeilDiv(n, TilesOf(plan) * kQuantRows);
}
int64_t Jobs(int64_t n, int64_t rows, const WidePlan& plan) {
  return BlocksN(n, plan) * CeilDiv(rows, plan.columns);
}

absl::StatusOr<WideMaps> MapsOf(const GemmParams& params,
                                const WideShape& shape) {
  const TensorView& x = params.x;
  WideMaps maps;
  INLAY_ASSIGN_OR_RETURN(
      maps.x, EncodeTensorMap("x", x.data,
                              shape.codes ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                          : CU_TENSOR_MAP_DATA_TYPE_UINT16,
                              CU_TENSOR_MAP_SWIZZLE_128B,
                              {2,
                               {static_cast<cuuint64_t>(x.cols()),
                                static_cast<cuuint64_t>(x.rows()), 1},
                               {x.row_stride_bytes, 0},
                               {shape.codes ? 128u : 64u,
                                static_cast<cuuint32_t>(shape.box), 1}}));
  if (shape.table != nullptr) {
    maps.w = maps.x;  // not looked at
    return maps;
  }
  // Halves, since a box has at most 256 elements a side.
  const auto half = static_cast<cuuint32_t>(shape.unit_bytes / 2);
  INLAY_ASSIGN_OR_RETURN(
      maps.w, EncodeTensorMap(
                  "packed weights", params.w.data + kQuantHeadBytes,
                  CU_TENSOR_MAP_DATA_TYPE_FLOAT64, CU_TENSOR_MAP_SWIZZLE_NONE,
                  {3,
                   {half / 8, static_cast<cuuint64_t>(2 * shape.units),
                    static_cast<cuuint64_t>(shape.tiles)},
                   {half, static_cast<cuuint64_t>(shape.tile_bytes)},
                   {half / 8, 2, static_cast<cuuint32_t>(shape.block_tiles)}}));
  return maps;
}

// Nanoseconds of a unit's decoding that the tensor cores do not hide, of 16
// tiles.
int64_t DecodeCost(QuantCodes codes) {
  switch (codes) {
    case QuantCodes::kLinear4:
      return 550;
    case QuantCodes::kTable4:
      return 1000;
    default:
      return 600;
  }
}

// Nanoseconds of a unit's products: those with 256 rows of x at a time leave
// the tensor cores fewer gaps.
int64_t UnitCost(const QuantForm& form, const WidePlan& plan) {
  if (plan.codes) return 200 + plan.columns * int64_t{3};
  return plan.columns == 256
             ? DecodeCost(form.codes) / 2 + 1075
             : DecodeCost(form.codes) + plan.columns * int64_t{15} / 2;
}

// Nanoseconds that a plan should take: rounds of jobs, each of units and an
// end. Fitted to what was measured on an H100; only their order matters.
int64_t CostOf(const QuantForm& form, int64_t n, int64_t k, int64_t rows,
               int num_sms, const WidePlan& plan) {
  const int64_t jobs = Jobs(n, rows, plan);
  const int64_t clusters = WideClustersAtOnce(plan.splits, num_sms);
  const int64_t blocks = std::min<int64_t>(jobs, clusters) * plan.splits;
  // Bytes a nanosecond: 4200 for all, 55 for one.
  const int64_t load =
      WStageBytes(form, plan) / std::clamp<int64_t>(4200 / blocks, 1, 55);
  const int64_t unit = std::max(UnitCost(form, plan), load);
  const int64_t units = QuantUnits(k);
  const int64_t alone = units * unit + (plan.columns == 128 ? 5000 : 4500);
  const int64_t shared = CeilDiv(units, plan.splits) * unit + 4500 +
                         700 * plan.splits + (plan.columns == 256 ? 500 : 0);
  if (plan.codes) {  // as measured when these were written
    const int64_t end = 1500 + plan.columns * 12 +
                        (plan.splits > 1 ? 600 + plan.splits * 900 : 0);
    return CeilDiv(jobs, clusters) * (CeilDiv(units, plan.splits) * unit + end);
  }
  if (plan.last) {
    return plan.whole / (clusters * plan.splits) * alone + shared;
  }
  return CeilDiv(jobs, clusters) * (plan.splits > 1 ? shared : alone);
}

bool IsVector(const TensorView& view, size_t element) {
  return reinterpret_cast<uintptr_t>(view.data) % (4 * element) == 0 &&
         view.row_stride_bytes % (4 * element) == 0;
}

WideShape ShapeOf(const GemmDesc& desc, const GemmParams& params,
                  const QuantForm& form, const WidePlan& plan) {
  WideShape shape = {};
  shape.n = desc.n;
  shape.k = desc.k;
  shape.tile_bytes = QuantTileBytes(form, desc.k);
  shape.m = static_cast<int>(params.x.rows());
  shape.blocks_m = static_cast<int>(CeilDiv(shape.m, plan.columns));
  shape.box = std::min(plan.columns, (shape.m + 7) / 8 * 8);
  shape.tiles = static_cast<int>(CeilDiv(desc.n, kQuantRows));
  shape.jobs = static_cast<int>(Jobs(desc.n, shape.m, plan));
  shape.units = static_cast<int>(QuantUnits(desc.k));
  shape.unit_bytes = QuantUnitBytes(form);
  shape.block_tiles = TilesOf(plan);
  shape.columns = plan.columns;
  shape.splits = plan.splits;
  shape.clusters = plan.clusters;
  shape.whole = plan.whole;
  shape.w_stages = plan.w_stages;
  shape.x_stages = plan.x_stages;
  shape.log_columns = std::countr_zero(static_cast<unsigned>(plan.columns));
  INLAY_DCHECK(plan.codes == (params.x_scales != nullptr) &&
               (!plan.codes || form.group == kQuantColumns));
  shape.codes = plan.codes;
  shape.narrow = desc.output != DType::kF32;
  (desc.scale_reach == ScaleReach::kRow ? shape.x_row_scales : shape.x_scales) =
      params.x_scales;
  const size_t element = shape.narrow ? 2 : 4;
  shape.vectors =
      IsVector(params.y, element) &&
      (params.residual.empty() || IsVector(params.residual, element));
  shape.x_ring = kWideHead;
  shape.w_ring =
      static_cast<uint32_t>(shape.x_ring + plan.x_stages * XStageBytes(plan));
  shape.x_scale_ring = static_cast<uint32_t>(
      shape.w_ring + plan.w_stages * WStageBytes(form, plan));
  shape.partials = static_cast<uint32_t>(shape.x_scale_ring +
                                         plan.x_stages * XScaleBytes(plan));
  shape.shared_bytes = plan.shared_bytes;
  return shape;
}

absl::Status Launch(const GemmParams& params, const QuantForm& form,
                    const WideShape& shape, CudaStream& stream) {
  INLAY_ASSIGN_OR_RETURN(const WideMaps maps, MapsOf(params, shape));
  if (shape.codes) {
    return LaunchWideCodes(params, maps, form, shape, stream);
  }
  switch (form.codes) {
    case QuantCodes::kLinear4:
      return LaunchWideLinear4(params, maps, form, shape, stream);
    case QuantCodes::kLinear6:
      return LaunchWideLinear6(params, maps, form, shape, stream);
    case QuantCodes::kTable4:
      return LaunchWideTable4(params, maps, form, shape, stream);
    case QuantCodes::kInt8:
      return LaunchWideInt8(params, maps, form, shape, stream);
    default:
      return LaunchWideE4M3(params, maps, form, shape, stream);
  }
}

}  // namespace

void FitWidePlan(const QuantForm& form, int64_t n, int64_t k, int64_t rows,
                 int num_sms, WidePlan& plan) {
  const int64_t jobs = Jobs(n, rows, plan);
  if (plan.last) {
    const int64_t most = WideClustersAtOnce(plan.splits, num_sms);
    const int64_t whole = jobs / (most * plan.splits) * most * plan.splits;
    plan.clusters = static_cast<int>(most);
    plan.whole = static_cast<int>(whole);
    plan.last =
        plan.splits > 1 && whole > 0 && jobs > whole && jobs - whole <= most;
    if (!plan.last) plan.splits = 1;
  }
  if (!plan.last) {
    const bool shared = plan.splits > 1;
    plan.clusters = static_cast<int>(
        shared ? jobs : std::min<int64_t>(jobs, std::max(1, num_sms)));
    plan.whole = static_cast<int>(shared ? 0 : jobs);
  }
  const int64_t shared_units =
      plan.splits > 1 ? CeilDiv(QuantUnits(k), plan.splits) : 0;
  const int64_t units =
      CeilDiv(plan.whole, int64_t{plan.clusters} * plan.splits) *
          QuantUnits(k) +
      shared_units;
  // Sums of a shared job, the last, take the rings' place.
  const int64_t apart = plan.whole > 0 ? PartialBytes(kWideChunk, plan) : 0;
  const int64_t room = kMostShared - kWideHead - apart;
  const int64_t most = std::clamp<int64_t>(units, 1, kMostUsedStages);
  // x comes from the level-2 cache: half as many stages as of weights.
  plan.w_stages = plan.x_stages = 1;
  const auto bytes = [&](int x, int w) {
    return x * (XStageBytes(plan) + XScaleBytes(plan)) +
           w * WStageBytes(form, plan);
  };
  for (bool grew = true; grew;) {
    grew = false;
    if (plan.w_stages < most &&
        bytes(plan.x_stages, plan.w_stages + 1) <= room) {
      ++plan.w_stages;
      grew = true;
    }
    if (plan.x_stages < most && plan.x_stages <= plan.w_stages / 2 + 1 &&
        bytes(plan.x_stages + 1, plan.w_stages) <= room) {
      ++plan.x_stages;
      grew = true;
    }
  }
  const int64_t rings = bytes(plan.x_stages, plan.w_stages);
  plan.shared_bytes = static_cast<size_t>(
      kWideHead + std::max(rings + apart, plan.splits > 1
                                              ? PartialBytes(plan.columns, plan)
                                              : 0));
}

WidePlan PlanWide(const QuantForm& form, int64_t n, int64_t k, int64_t rows,
                  int num_sms, bool codes) {
  WidePlan best;
  int64_t least = 0;
  const int most_columns = codes ? 128 : 256;
  for (int columns = 64; columns <= most_columns; columns *= 2) {
    for (int splits = 1; splits <= kMostWideSplits; ++splits) {
      for (const bool last : {false, true}) {
        if (splits > QuantUnits(k) || (last && (codes || splits == 1)) ||
            (codes && !std::has_single_bit(static_cast<unsigned>(splits)))) {
          continue;
        }
        WidePlan plan;
        plan.codes = codes;
        plan.columns = columns;
        plan.splits = splits;
        plan.last = last;
        FitWidePlan(form, n, k, rows, num_sms, plan);
        if (plan.last != last) continue;
        const int64_t cost = CostOf(form, n, k, rows, num_sms, plan);
        if (least == 0 || cost < least) {
          best = plan;
          least = cost;
        }
      }
    }
  }
  return best;
}

bool WideTakes(const TensorView& x) {
  return x.row_stride_bytes % 16 == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

absl::Status RunQuantisedWide(const GemmDesc& desc, const GemmParams& params,
                              const QuantForm& form, const WidePlan& plan,
                              CudaStream& stream) {
  return Launch(params, form, ShapeOf(desc, params, form, plan), stream);
}

bool WideRoundsTooMuch(const QuantForm& form) {
  return form.has_min && form.group == 16;
}

absl::Status RunQuantisedWideGroups(const GemmDesc& desc,
                                    const GemmParams& params,
                                    const QuantForm& form,
                                    const WideGroups& groups,
                                    CudaStream& stream) {
  const int64_t rows = params.x.rows();
  WidePlan plan;
  // A group's last piece is half empty on average.
  plan.columns = rows > kWideGroupRows * groups.num_groups ? 128 : 64;
  FitWidePlan(form, desc.n, desc.k, rows, stream.num_sms(), plan);
  WideShape shape = ShapeOf(desc, params, form, plan);
  shape.offsets = groups.offsets;
  shape.slots = groups.slots;
  shape.num_groups = groups.num_groups;
  shape.table = groups.table;
  shape.group_tiles = static_cast<int>(groups.stride_bytes / shape.tile_bytes);
  shape.blocks_n = static_cast<int>(BlocksN(desc.n, plan));
  shape.tiles = shape.group_tiles * groups.num_groups;
  // At most: how many rows each group has only the device knows.
  const int64_t pieces =
      std::min(rows, rows / plan.columns + groups.num_groups);
  shape.jobs = static_cast<int>(pieces * shape.blocks_n);
  shape.whole = shape.jobs;
  shape.clusters = std::min(shape.jobs, std::max(1, stream.num_sms()));
  return Launch(params, form, shape, stream);
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
