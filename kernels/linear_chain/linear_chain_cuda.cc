// How linear_chain's kernel cuts its work and shared memory, and its launch.
#if INLAY_HAS_CUDA

#include <algorithm>

#include "kernels/linear_chain/chain_shape.h"
#include "kernels/linear_chain/linear_chain.h"
#include "memory/formatted_string.h"

namespace inlay {
namespace {

// What a block of Hopper may have.
constexpr uint32_t kMostShared = 227 << 10;
constexpr int kLeastRing = 3;

uint32_t Align(int64_t bytes) {
  return static_cast<uint32_t>((bytes + 127) / 128 * 128);
}

// The most tiles of a block in a round.
int CutStage(const LinearChainStage& from, int unit_bytes, bool alone,
             int blocks, ChainStage& stage) {
  const int tiles_a_job = from.gated ? 2 : 1;
  stage.n = static_cast<int>(from.gemm.n / tiles_a_job);
  stage.k = static_cast<int>(from.gemm.k);
  stage.units = static_cast<int>(QuantUnits(from.gemm.k));
  stage.jobs = CutChain((stage.n + kQuantRows - 1) / kQuantRows, blocks);
  stage.gated = from.gated;
  stage.function = from.function;
  stage.float_y = !from.adds && from.gemm.output == DType::kF32;
  const int jobs = stage.jobs.each + (stage.jobs.rest > 0 ? 1 : 0);
  stage.rounds =
      alone ? (jobs * tiles_a_job + kMostRoundTiles - 1) / kMostRoundTiles : 1;
  stage.round_jobs = (jobs + stage.rounds - 1) / stage.rounds;
  const int tiles = stage.round_jobs * tiles_a_job;
  const int places =
      tiles * ((stage.units + kChainPlaceUnits - 1) / kChainPlaceUnits);
  const bool many = places >= kManyChainPlaces &&
                    kMostUnderWay * kChainPlaceUnits * unit_bytes <= kUnderWay;
  stage.under_way = many ? kMostUnderWay : kFewUnderWay;
  return tiles;
}

// Words that stage s hands on a row of x: to the one behind it, or where it
// adds to whoever normalises hidden.
int64_t WordsOf(const LinearChainStage& stage) {
  if (stage.adds) return stage.gemm.n;
  return ((stage.gated ? stage.gemm.n / 2 : stage.gemm.n) + 1) / 2;
}

}  // namespace

size_t LinearChainExchangeBytes(const LinearChainDesc& desc) {
  if (desc.stages.size() < 2) return 0;
  int64_t words = 0;
  for (const LinearChainStage& stage : desc.stages) words += WordsOf(stage);
  return sizeof(ChainExchange) +
         static_cast<size_t>(words * kChainRows) * sizeof(uint64_t);
}

bool PlaceChain(const LinearChainDesc& desc, int m, int blocks,
                ChainShape& shape) {
  if (blocks <= 0) return false;
  const QuantForm form = QuantFormOf(desc.stages.front().gemm.weight);
  const int unit_bytes = QuantUnitBytes(form);
  int units = 0;
  const bool alone = desc.stages.size() == 1;
  int64_t tiles[2] = {};
  for (size_t s = 0; s < desc.stages.size(); ++s) {
    const GemmDesc& gemm = desc.stages[s].gemm;
    // Before sizes that may be anything become those of shared memory.
    constexpr int64_t kMost = int64_t{1} << 20;
    if (gemm.n > kMost || gemm.k * kChainDigits > kMostShared) return false;
    const int of_stage =
        CutStage(desc.stages[s], unit_bytes, alone, blocks, shape.stages[s]);
    tiles[s % 2] = std::max<int64_t>(tiles[s % 2], of_stage);
    if (shape.stages[s].rounds > 1) tiles[1] = tiles[0];
    units = std::max(units, shape.stages[s].units);
  }
  const int64_t tile_bytes = int64_t{ChainPartials(m)} * sizeof(float);
  if ((tiles[0] + tiles[1]) * tile_bytes > kMostShared) return false;
  ChainPlaces& at = shape.at;
  at.squares = Align(kChainBarriers + sizeof(ChainShape));
  at.partials[0] =
      Align(at.squares + int64_t{2} * kChainRows * kChainWarps * sizeof(float));
  at.partials[1] = at.partials[0] + Align(tiles[0] * tile_bytes);
  at.facts = at.partials[1] + Align(tiles[1] * tile_bytes);
  at.x = at.facts + Align(int64_t{units} * m * 4 *
                          ChainFactsOfX(form.codes, form.group, form.has_min));
  // Rows 16 bytes more than a multiple of 128 apart: ldmatrix meets all banks.
  at.x_stride = static_cast<uint32_t>(units * kQuantColumns + 16);
  at.ring = Align(at.x + int64_t{m} * kChainDigits * at.x_stride);
  if (at.ring >= kMostShared) return false;
  shape.m = m;
  const auto room = static_cast<int>(kMostShared - at.ring);
  const int place = kChainPlaceUnits * unit_bytes;
  shape.ring = std::min(room / place, kMostChainRing);
  at.bytes = at.ring + static_cast<uint32_t>(shape.ring * place);
  return shape.ring >= kLeastRing;
}

absl::Status RunLinearChainSm90(const LinearChainDesc& desc,
                                const LinearChainParams& params,
                                Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  ChainShape shape = {};
  const bool normalised = desc.stages.front().normalised;
  const auto m =
      static_cast<int>((normalised ? params.hidden : params.x).rows());
  if (m > kChainRows || !PlaceChain(desc, m, cuda.num_sms(), shape)) {
    return absl::InternalError(FormattedString(
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
  shape.exchange =
      shape.count > 1 ? static_cast<ChainExchange*>(params.exchange) : nullptr;
  auto* words = shape.exchange == nullptr
                    ? nullptr
                    : reinterpret_cast<uint64_t*>(shape.exchange + 1);
  const uint64_t* hidden_words = nullptr;
  const uint64_t* x_words = nullptr;
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
    stage.mean = 1.0f / static_cast<float>(stage.k);
    stage.from = from.normalised ? hidden_words : x_words;
    if (!from.normalised) {
      stage.x = x.data;
      stage.x_stride = elements(x);
    }
    if (!from.adds) {
      stage.y = with.y.data;
      stage.y_stride = elements(with.y);
    }
    x = with.y;
    if (s + 1 == desc.stages.size()) break;  // nobody waits for it
    stage.to = words;
    (from.adds ? hidden_words : x_words) = words;
    words += WordsOf(from) * m;
  }
  const DType type = desc.stages.front().gemm.activation;
  return form.codes == QuantCodes::kInt8
             ? LaunchChainInt8(shape, type, form, cuda)
             : LaunchChainLinear4(shape, type, form, cuda);
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
