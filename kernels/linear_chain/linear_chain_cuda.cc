// How linear_chain's kernel cuts its work and shared memory, and its launch.
#if INLAY_HAS_CUDA

#include <algorithm>

#include "absl/strings/str_format.h"
#include "kernels/linear_chain/chain_shape.h"
#include "kernels/linear_chain/linear_chain.h"

namespace inlay {
namespace {

// What a block of Hopper may have.
constexpr uint32_t kMostShared = 227 << 10;
constexpr uint32_t kBarrierBytes = kChainWarps * kMostChainRing * 8;
// Of a place of a ring, about: one copy.

constexpr int kPlaceBytes = 2304;
constexpr int kLeastRing = 3;
// Pieces of tiles are counted in a byte.
constexpr int kMostPieces = 255;

uint32_t Align(int64_t bytes) {
  return static_cast<uint32_t>((bytes + 127) / 128 * 128);
}

// The most tiles of a block.
int CutStage(const LinearChainStage& from, int blocks, ChainStage& stage) {
  const int tiles_a_job = from.gated ? 2 : 1;
  stage.n = static_cast<int>(from.gemm.n / tiles_a_job);
  stage.k = static_cast<int>(from.gemm.k);
  stage.units = static_cast<int>(QuantUnits(from.gemm.k));
  stage.jobs = CutChain((stage.n + kQuantRows - 1) / kQuantRows, blocks);
  stage.gated = from.gated;
  stage.function = from.function;
  return (stage.jobs.each + (stage.jobs.rest > 0 ? 1 : 0)) * tiles_a_job;
}

}  // namespace

bool PlaceChain(const LinearChainDesc& desc, int m, int blocks,
                ChainShape& shape) {
  if (blocks <= 0) return false;
  const QuantForm form = QuantFormOf(desc.stages.front().gemm.weight);
  const int unit_bytes = QuantUnitBytes(form);
  int units = 0;
  int slots = 0;
  shape.pieces = 1;
  for (size_t s = 0; s < desc.stages.size(); ++s) {
    const GemmDesc& gemm = desc.stages[s].gemm;
    // Before sizes that may be anything become those of shared memory.
    constexpr int64_t kMost = int64_t{1} << 20;
    if (gemm.n > kMost || gemm.k * 2 > kMostShared) return false;
    const int tiles = CutStage(desc.stages[s], blocks, shape.stages[s]);
    slots = std::max(slots, tiles);
    units = std::max(units, shape.stages[s].units);
    const int of_warp = (tiles + kChainWarps - 1) / kChainWarps;
    shape.pieces = std::max(shape.pieces, of_warp + 1);
  }
  if (shape.pieces > kMostPieces) return false;
  ChainPlaces& at = shape.at;
  at.sums = kBarrierBytes;
  at.starts = at.sums + kChainRows * 32 * sizeof(float);
  at.partials = Align(at.starts + int64_t{slots} * 2);
  at.x_sums = at.partials + Align(int64_t{kChainWarps} * shape.pieces *
                                  kQuantRows * kChainRows * 4);
  at.x = at.x_sums;
  if (form.has_min) {
    at.x +=
        Align(int64_t{units} * (kQuantColumns / form.group) * kChainRows * 4);
  }
  // Rows 16 bytes more than a multiple of 128 apart: ldmatrix meets all banks.
  at.x_stride = static_cast<uint32_t>(units * kQuantColumns * 2 + 16);
  at.rings = Align(at.x + int64_t{m} * at.x_stride);
  if (at.rings >= kMostShared) return false;
  shape.m = m;
  shape.place_units = std::max(1, kPlaceBytes / unit_bytes);
  const auto room = static_cast<int>((kMostShared - at.rings) / kChainWarps);
  while (shape.place_units > 1 &&
         room / (shape.place_units * unit_bytes) < kLeastRing) {
    --shape.place_units;
  }
  const int place = shape.place_units * unit_bytes;
  shape.ring = std::min(room / place, kMostChainRing);
  at.bytes = at.rings + static_cast<uint32_t>(kChainWarps * shape.ring * place);
  return shape.ring >= kLeastRing;
}

absl::Status RunLinearChainSm90(const LinearChainDesc& desc,
                                const LinearChainParams& params,
                                Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  ChainShape shape = {};
  const auto m = static_cast<int>(params.hidden.rows());
  if (m > kChainRows || !PlaceChain(desc, m, cuda.num_sms(), shape)) {
    return absl::InternalError(absl::StrFormat(
        "linear_chain: %d rows of x are more than the kernel serves", m));
  }
  const auto elements = [](const TensorView& view) {
    return static_cast<int64_t>(view.row_stride_bytes) /
           (view.dtype == DType::kF32 ? 4 : 2);
  };
  const QuantForm form = QuantFormOf(desc.stages.front().gemm.weight);
  shape.count = static_cast<int>(desc.stages.size());
  shape.hidden = reinterpret_cast<float*>(params.hidden.data);
  shape.hidden_stride = elements(params.hidden);
  shape.barrier = params.barrier;
  TensorView x = params.x;
  for (size_t s = 0; s < desc.stages.size(); ++s) {
    const LinearChainStage& from = desc.stages[s];
    const LinearChainParams::Stage& with = params.stages[s];
    ChainStage& stage = shape.stages[s];
    stage.w = reinterpret_cast<const uint8_t*>(with.w.data);
    stage.tile_bytes = QuantTileBytes(form, from.gemm.k);
    stage.bias = with.bias;
    stage.norm_weight = with.norm_weight;
    stage.epsilon = with.epsilon;
    if (!from.normalised) {
      stage.x = x.data;
      stage.x_stride = elements(x);
    }
    if (!from.adds) {
      stage.y = with.y.data;
      stage.y_stride = elements(with.y);
    }
    x = with.y;
  }
  const DType type = desc.stages.front().gemm.activation;
  return form.codes == QuantCodes::kInt8
             ? LaunchChainInt8(shape, type, form, cuda)
             : LaunchChainLinear4(shape, type, form, cuda);
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
