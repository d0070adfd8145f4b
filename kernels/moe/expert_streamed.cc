// How expert_streamed_sm90.cuh cuts experts' matrices, and its launch.
#if INLAY_HAS_CUDA

#include <algorithm>
#include <cmath>

#include "kernels/cuda_tensor_map.h"
#include "kernels/gemm/quantised/wide_cuda.h"
#include "kernels/moe/expert_linear_cuda.h"
#include "kernels/moe/expert_streamed_shape.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kHopper = 90;
// What a block of Hopper may have.
constexpr int64_t kMostShared = 227 << 10;
// The tables of experts take 8 bytes of each.
constexpr int kMostStreamedExperts = 512;
// With more slots an expert on average, pieces of 8 would read many experts
// more than once.
constexpr int64_t kFewPieceRows = 5;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

// Behind the barriers and both tables.
int64_t PartsAt(const ExpertLinearDesc& desc) {
  return RoundUp(1024 + 8 * (desc.num_experts + 1), 128);
}

// Pieces of so many rows that slots should make: experts are chosen evenly, as
// far as is known here.
double LikelyPieces(const ExpertLinearDesc& desc, int64_t slots,
                    int64_t piece_rows) {
  const double experts = desc.num_experts;
  const auto all = static_cast<double>(slots);
  return std::max(experts * (1.0 - std::exp(-all / experts)),
                  all / static_cast<double>(piece_rows));
}

// Warps that share a pair's K: what should be fastest. A warp by itself takes
// some 1,150 cycles a unit and pair, all of them 1,400; pairs and shares finish
// one after the other. Measured on an H200.
int SharesOf(const ExpertLinearDesc& desc, int pairs, int units, double pieces,
             int num_sms) {
  if (desc.gemm.batch_invariant) return std::min(2, units);
  const double own = std::max(1.0, pieces * pairs / num_sms);
  int best = 1;
  double least = 0.0;
  for (const int shares : {1, 2, 3, 4, 7}) {
    if (shares > units) break;
    const double most = kExpertStreamWarps / shares;
    const double rounds = std::ceil(own / most);
    const double busy = std::ceil(own / rounds) * shares;
    const double cost = rounds * (static_cast<double>(CeilDiv(units, shares)) *
                                      std::max(1150.0, 100.0 * busy) +
                                  (shares == 1 ? 400 : 900 + 60 * shares));
    if (shares == 1 || cost < least) {
      least = cost;
      best = shares;
    }
  }
  return best;
}

int RowTiles(const ExpertLinearDesc& desc, int64_t slots) {
  return slots > kFewPieceRows * desc.num_experts ? 2 : 1;
}

ExpertStreamedShape ShapeOf(const ExpertLinearDesc& desc,
                            const ExpertLinearParams& params,
                            const QuantForm& form, int row_tiles, int num_sms) {
  const GemmDesc& gemm = desc.gemm;
  const int64_t slots = params.y.rows();
  const auto tiles = static_cast<int>(gemm.n / kQuantRows);
  ExpertStreamedShape shape = {};
  shape.offsets = params.offsets;
  shape.slots = params.slots;
  shape.table = params.w.table;
  shape.expert_bytes = static_cast<int64_t>(params.w.stride_bytes);
  shape.tile_bytes = QuantTileBytes(form, gemm.k);
  shape.num_experts = desc.num_experts;
  shape.top_k = desc.top_k;
  shape.row_a_slot = desc.row_a_slot;
  shape.n = static_cast<int>(desc.gated ? gemm.n / 2 : gemm.n);
  shape.k = static_cast<int>(gemm.k);
  shape.pairs = tiles / 2;
  shape.pair_tile = desc.gated ? 1 : 2;
  shape.other_tile = desc.gated ? tiles / 2 : 1;
  shape.expert_step = tiles / shape.pair_tile;
  shape.units = static_cast<int>(QuantUnits(gemm.k));
  shape.unit_bytes = QuantUnitBytes(form);
  shape.unit_rows = BoxRowsOf(shape.unit_bytes);
  const int64_t rows = int64_t{8} * row_tiles;
  const double likely = LikelyPieces(desc, slots, rows);
  shape.shares = SharesOf(desc, shape.pairs, shape.units, likely, num_sms);
  // Pieces there may be at most, and their pairs a block.
  const int64_t pieces = std::min(slots, slots / rows + desc.num_experts);
  shape.round_pairs = static_cast<int>(std::clamp<int64_t>(
      CeilDiv(pieces * shape.pairs, num_sms), 1,
      std::min(kExpertStreamWarps / shape.shares, shape.pairs)));
  shape.groups = static_cast<int>(CeilDiv(shape.units, shape.shares));
  shape.x_row_bytes = shape.shares * kQuantColumns * 2 + 16;
  shape.x_bytes = static_cast<int>(RoundUp(rows * shape.x_row_bytes, 128));
  shape.parts = static_cast<uint32_t>(PartsAt(desc));
  for (;; --shape.round_pairs) {
    const int64_t pair_bytes = int64_t{2} * shape.shares * shape.unit_bytes;
    shape.place_bytes = static_cast<int>(
        RoundUp(2 * shape.x_bytes + shape.round_pairs * pair_bytes +
                    (pair_bytes % 128 == 0 ? 0 : 64),
                128));
    shape.ring = static_cast<uint32_t>(shape.parts + 2 * shape.round_pairs *
                                                         (shape.shares - 1) *
                                                         row_tiles * 1024);
    shape.places = static_cast<int>(std::min<int64_t>(
        (kMostShared - shape.ring) / shape.place_bytes, kMostExpertPlaces));
    if (shape.places > 1 || shape.round_pairs == 1) break;
  }
  shape.gated = desc.gated;
  shape.narrow = gemm.output != DType::kF32;
  shape.function = desc.function;
  shape.limit = desc.limit;
  shape.shared_bytes = shape.ring + static_cast<size_t>(shape.places) *
                                        static_cast<size_t>(shape.place_bytes);
  return shape;
}

absl::StatusOr<ExpertStreamedMaps> MapsOf(const ExpertLinearDesc& desc,
                                          const ExpertLinearParams& params,
                                          const ExpertStreamedShape& shape) {
  const auto rows = static_cast<cuuint32_t>(shape.unit_rows);
  const auto row = static_cast<cuuint32_t>(shape.unit_bytes) / rows;
  const auto tile = static_cast<cuuint64_t>(shape.tile_bytes);
  const auto pairs = static_cast<cuuint64_t>(desc.num_experts) *
                     static_cast<cuuint64_t>(shape.expert_step);
  ExpertStreamedMaps maps = {};
  if (shape.table != nullptr) return maps;
  for (int i = 0; i < kExpertBoxes; ++i) {
    if (1 << i > shape.round_pairs) {  // not looked at
      maps.w[i] = maps.w[0];
      continue;
    }
    INLAY_ASSIGN_OR_RETURN(
        maps.w[i],
        EncodeTensorMap(
            "experts", const_cast<std::byte*>(params.w.base) + kQuantHeadBytes,
            CU_TENSOR_MAP_DATA_TYPE_FLOAT64, CU_TENSOR_MAP_SWIZZLE_NONE,
            {4,
             {row / 8, rows * static_cast<cuuint64_t>(shape.units), 2, pairs},
             {row, static_cast<cuuint64_t>(shape.other_tile) * tile,
              static_cast<cuuint64_t>(shape.pair_tile) * tile},
             {row / 8, rows * static_cast<cuuint32_t>(shape.shares), 2,
              1u << i}}));
  }
  return maps;
}

}  // namespace

bool ExpertStreamedTakes(const ExpertLinearDesc& desc,
                         const ExpertLinearParams& params,
                         const CudaStream& stream) {
  const GemmDesc& gemm = desc.gemm;
  const QuantForm form = QuantFormOf(gemm.weight);
  return stream.sm() == kHopper && params.slots != nullptr &&
         desc.num_experts <= kMostStreamedExperts &&
         gemm.n % (2 * kQuantRows) == 0 && gemm.k % 8 == 0 &&
         params.w.stride_bytes ==
             static_cast<size_t>(QuantBytes(form, gemm.n, gemm.k)) &&
         WideTakes(params.x);
}

absl::Status RunExpertStreamed(const ExpertLinearDesc& desc,
                               const ExpertLinearParams& params,
                               CudaStream& stream) {
  const QuantForm form = QuantFormOf(desc.gemm.weight);
  const int row_tiles = RowTiles(desc, params.y.rows());
  ExpertStreamedShape shape =
      ShapeOf(desc, params, form, row_tiles, std::max(1, stream.num_sms()));
  shape.listed = stream.last_waited_first();
  INLAY_ASSIGN_OR_RETURN(const ExpertStreamedMaps maps,
                         MapsOf(desc, params, shape));
  const auto launch =
      form.codes == QuantCodes::kLinear4   ? LaunchExpertStreamedLinear4
      : form.codes == QuantCodes::kLinear6 ? LaunchExpertStreamedLinear6
      : form.codes == QuantCodes::kTable4  ? LaunchExpertStreamedTable4
      : form.codes == QuantCodes::kInt8    ? LaunchExpertStreamedInt8
                                           : LaunchExpertStreamedE4M3;
  return launch(params, maps, form, row_tiles, shape, stream);
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
