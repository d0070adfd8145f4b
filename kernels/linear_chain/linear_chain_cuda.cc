// How linear_chain's kernel cuts its work and shared memory, and its launch.
#if INLAY_HAS_CUDA

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/gemm/tensor_map.h"
#include "kernels/linear_chain/chain_shape.h"
#include "kernels/linear_chain/linear_chain.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// What a block of Hopper may have.
constexpr uint32_t kMostShared = 227 << 10;
constexpr int kLeastRing = 3;  // and two tiles of all warps

uint32_t Align(int64_t bytes) {
  return static_cast<uint32_t>((bytes + 127) / 128 * 128);
}

// Outputs and columns of x of a stage: of experts those of all of m tokens'
// slots side by side, columns in whole units of each.
int64_t OutputsOf(const LinearChainDesc& desc, const LinearChainStage& stage,
                  int m) {
  const int64_t n = stage.gated ? stage.gemm.n / 2 : stage.gemm.n;
  return stage.experts == ChainExperts::kInput
             ? n * m * desc.routing.top_k + desc.shared_width
             : n;
}
int64_t ColumnsOf(const LinearChainDesc& desc, const LinearChainStage& stage,
                  int m) {
  return stage.experts == ChainExperts::kOutput
             ? QuantUnits(stage.gemm.k) * kQuantColumns * m *
                       desc.routing.top_k +
                   desc.shared_width
             : stage.gemm.k;
}

// Units of x that a row has.
int64_t UnitsOfRow(const LinearChainDesc& desc, const LinearChainStage& stage) {
  return QuantUnits(ColumnsOf(desc, stage, 1));
}

int UnitBytes(const GemmDesc& gemm) {
  return IsBlockFormat(gemm.weight) ? QuantUnitBytes(QuantFormOf(gemm.weight))
                                    : kPlainUnitBytes;
}

// How many units of a matrix as in files a copy brings: of experts' outputs no
// more than lie side by side, which begin at multiples of that.
int BoxUnits(const LinearChainStage& stage, int place_units) {
  int units = place_units;
  if (stage.experts != ChainExperts::kOutput) return units;
  while (QuantUnits(stage.gemm.k) % units != 0) units /= 2;
  return units;
}

// The most tiles of a block in a round.
int CutStage(const LinearChainDesc& desc, const LinearChainStage& from,
             int place_units, int m, int blocks, ChainStage& stage) {
  const bool alone = desc.stages.size() == 1;
  const int tiles_a_job = from.gated ? 2 : 1;
  stage.n = static_cast<int>(OutputsOf(desc, from, m));
  stage.k = static_cast<int>(ColumnsOf(desc, from, m));
  stage.units = static_cast<int>(QuantUnits(stage.k));
  stage.jobs = CutChain((stage.n + kQuantRows - 1) / kQuantRows, blocks);
  stage.gated = from.gated;
  stage.same_x = from.same_x;
  stage.box_units = static_cast<uint8_t>(BoxUnits(from, place_units));
  stage.function = from.function;
  stage.limit = from.limit;
  stage.float_y = !from.adds && from.gemm.output == DType::kF32;
  const int jobs = stage.jobs.each + (stage.jobs.rest > 0 ? 1 : 0);
  const int rounds =
      alone ? (jobs * tiles_a_job + kMostRoundTiles - 1) / kMostRoundTiles : 1;
  const int round_jobs = (jobs + rounds - 1) / rounds;
  stage.rounds = static_cast<uint16_t>(rounds);
  // Where that is too small for it sums of so many tiles have no room.
  stage.round_jobs = static_cast<uint16_t>(round_jobs);
  const int tiles = round_jobs * tiles_a_job;
  // Copies of about so many bytes.
  const auto copies = [&](int bytes) {
    const int copy = place_units * UnitBytes(from.gemm);
    return (bytes + copy / 2) / copy;
  };
  const bool has_many = tiles * stage.units >= kManyChainUnits;
  int under_way;
  if (!IsBlockFormat(from.gemm.weight)) {
    under_way = copies(has_many ? kMostPlainUnderWay : kFewPlainUnderWay);
  } else if (has_many || from.experts == ChainExperts::kInput) {
    // While experts are chosen nothing is.
    under_way = std::max(copies(kMostUnderWay), 3);
  } else {
    under_way = std::max(copies(kFewUnderWay), 2);
  }
  stage.under_way = static_cast<uint8_t>(under_way);
  return tiles;
}

// Bytes of a row of what stage s hands on: to the one behind it, or where it
// adds to whoever normalises hidden.
int64_t HandedOnBytes(const LinearChainDesc& desc, size_t s, int m) {
  const LinearChainStage& stage = desc.stages[s];
  const bool is_last = s + 1 == desc.stages.size();
  if (is_last) return 0;
  if (!stage.adds && (stage.same_x || desc.stages[s + 1].same_x)) return 0;
  const int64_t columns =
      stage.experts == ChainExperts::kInput
          ? ColumnsOf(desc, desc.stages[s + 1], m)
          : QuantUnits(OutputsOf(desc, stage, m)) * kQuantColumns;
  return columns * (stage.adds ? 4 : 2);
}
int64_t WholeHanded(int64_t bytes) {
  return (bytes + kChainHandedBytes - 1) / kChainHandedBytes *
         kChainHandedBytes;
}

// With that of a shared expert's gate; words that are handed on.
int64_t LogitWords(const LinearChainDesc& desc) {
  return desc.routing.num_experts + (desc.shared_gated ? 1 : 0);
}

// What of a mixture follows from shapes and the number of blocks. The stage of
// experts' inputs, or -1.
int CutMixture(const LinearChainDesc& desc, int m, ChainMixture& mixture) {
  mixture = {};
  mixture.input = -1;
  for (size_t s = 0; s + 1 < desc.stages.size(); ++s) {
    if (desc.stages[s].experts != ChainExperts::kInput) continue;
    const GemmDesc& input = desc.stages[s].gemm;
    const GemmDesc& output = desc.stages[s + 1].gemm;
    mixture.input = static_cast<int8_t>(s);
    mixture.input_tiles =
        LaunchDivisor(std::max(static_cast<int>(input.n / 2 / kQuantRows), 1));
    mixture.output_units =
        LaunchDivisor(std::max(static_cast<int>(QuantUnits(output.k)), 1));
    mixture.shared_tiles = static_cast<int>(desc.shared_width / kQuantRows);
    if (IsBlockFormat(output.weight)) {
      mixture.shared_bytes = static_cast<int>(
          QuantTileBytes(QuantFormOf(output.weight), desc.shared_width));
    }
    mixture.float_router = desc.router == DType::kF32;
  }
  const RoutingDesc& routing = desc.routing;
  mixture.scale = routing.scale;
  mixture.num_experts = routing.num_experts;
  mixture.top_k = routing.top_k;
  mixture.slots = static_cast<uint8_t>(m * routing.top_k);
  mixture.sigmoid = routing.score == RoutingScore::kSigmoid;
  mixture.normalised = routing.normalised;
  mixture.num_groups = static_cast<uint8_t>(routing.num_groups);
  mixture.top_groups = static_cast<uint8_t>(routing.top_groups);
  mixture.two_of_group = routing.group_score == GroupScore::kTopTwo;
  int sharers = 32;
  while (sharers * routing.num_experts > kChainThreads) sharers /= 2;
  mixture.sharers = static_cast<uint8_t>(sharers);
  return mixture.input;
}

}  // namespace

size_t LinearChainExchangeBytes(const LinearChainDesc& desc) {
  if (desc.stages.size() < 2) return 0;
  int64_t bytes = WholeHanded(LogitWords(desc) * kChainRows * 4);
  for (size_t s = 0; s < desc.stages.size(); ++s) {
    bytes += WholeHanded(HandedOnBytes(desc, s, kChainRows) * kChainRows);
  }
  return sizeof(ChainExchange) + static_cast<size_t>(2 * bytes);
}

namespace {

// False: a level is no integer of 7 bits.
bool IntegerLevels(const QuantForm& form, ChainLevels& levels) {
  // The first half is of one sign, the second of the other.
  float sign = 1.0f;
  for (int i = 0; i < 8; ++i) {
    if (form.levels[i] < 0.0f) sign = -1.0f;
  }
  for (float one = 1.0f; one >= 0x1p-4f; one *= 0.5f) {
    bool all = true;
    levels = {};
    levels.one = sign * one;
    for (int i = 0; all && i < 16; ++i) {
      const float level = form.levels[i] / levels.one * (i < 8 ? 1.0f : -1.0f);
      all = level >= 0.0f && level <= 127.0f && level == std::trunc(level);
      if (!all) break;
      levels.bytes[i / 4] |= static_cast<uint32_t>(level) << i % 4 * 8;
    }
    if (all) return true;
  }
  return false;
}

ChainX XOf(const QuantForm& form) {
  ChainLevels levels;
  switch (form.codes) {
    case QuantCodes::kE4M3:
      return ChainX::kFloats;
    case QuantCodes::kTable4:
      return IntegerLevels(form, levels) ? ChainX::kNeighbours
                                         : ChainX::kFloats;
    default:
      return ChainX::kDigits;
  }
}

}  // namespace

ChainLevels ChainLevelsOf(const QuantForm& form, ChainX x) {
  ChainLevels levels = {};
  if (x == ChainX::kNeighbours) {
    IntegerLevels(form, levels);
  } else if (x == ChainX::kFloats) {
    levels.one = 1.0f;
    for (int i = 0; i < 16; ++i) {
      const uint16_t bits = F32ToF16(form.levels[i]);
      const int shift = i % 4 * 8;
      levels.bytes[i / 4] |= static_cast<uint32_t>(bits & 0xff) << shift;
      levels.bytes[4 + i / 4] |= static_cast<uint32_t>(bits >> 8) << shift;
    }
  }
  return levels;
}

bool FormsOfChain(const LinearChainDesc& desc, ChainFormPair& forms) {
  constexpr auto kFour = QuantCodes::kLinear4, kSix = QuantCodes::kLinear6;
  const auto is_alone = [](const QuantForm& form) {
    return form.codes == QuantCodes::kInt8 || form.codes == QuantCodes::kE4M3 ||
           (form.codes == QuantCodes::kTable4 &&
            (form.group == 32 || XOf(form) == ChainX::kNeighbours)) ||
           (form.codes == kFour && form.group != 16) ||
           (form.codes == kSix && form.has_min == (form.group != 16));
  };
  // Of mixtures the first has minima, and the second more bits, or groups of
  // 16 and none; or the first has levels, and the second 8 bits.
  const auto is_pair = [](const QuantForm& first, const QuantForm& second) {
    if (first.codes == QuantCodes::kTable4) {
      return first.group == 32 && XOf(first) == ChainX::kNeighbours &&
             second.codes == QuantCodes::kInt8 && second.group == 32 &&
             !second.has_min;
    }
    return first.has_min && first.group == 32 && second.codes == kSix &&
           (first.codes == kFour ||
            (first.codes == kSix && second.group == 16));
  };
  const GemmDesc& front = desc.stages.front().gemm;
  forms = {};
  if (!IsBlockFormat(front.weight)) {
    forms.is_plain = true;
    forms.x = ChainX::kFloats;
    return std::all_of(desc.stages.begin(), desc.stages.end(),
                       [&](const LinearChainStage& stage) {
                         return stage.gemm.weight == front.activation;
                       });
  }
  forms.first = forms.second = QuantFormOf(front.weight);
  for (const LinearChainStage& stage : desc.stages) {
    if (!IsBlockFormat(stage.gemm.weight)) return false;
    const QuantForm form = QuantFormOf(stage.gemm.weight);
    if (!is_alone(form)) return false;
    if (SameForm(form, forms.first) || SameForm(form, forms.second)) continue;
    if (forms.is_mixed) return false;
    forms.second = form;
    forms.is_mixed = true;
  }
  if (forms.is_mixed && !is_pair(forms.first, forms.second)) {
    std::swap(forms.first, forms.second);
    if (!is_pair(forms.first, forms.second)) return false;
  }
  forms.x = XOf(forms.first);
  return true;
}

bool PlaceChain(const LinearChainDesc& desc, int m, int blocks,
                ChainShape& shape) {
  ChainFormPair forms;
  if (blocks <= 0 || !FormsOfChain(desc, forms)) return false;
  const QuantForm& form = forms.first;  // of x
  int most_unit_bytes = 0;
  for (const LinearChainStage& stage : desc.stages) {
    most_unit_bytes = std::max(most_unit_bytes, UnitBytes(stage.gemm));
  }
  const int place_units = ChainPlaceUnits(most_unit_bytes);
  const int plane_bytes = ChainPlaneBytes(forms.x);
  const int unit_of_x = ChainPlanes(forms.x) * plane_bytes;
  int units = 0;
  int64_t units_of_row = 0;
  int64_t tiles[2] = {};
  for (size_t s = 0; s < desc.stages.size(); ++s) {
    const LinearChainStage& stage = desc.stages[s];
    const GemmDesc& gemm = stage.gemm;
    // Before sizes that may be anything become those of shared memory.
    constexpr int64_t kMost = int64_t{1} << 20;
    if (OutputsOf(desc, stage, m) > kMost ||
        UnitsOfRow(desc, stage) * unit_of_x > kMostShared) {
      return false;
    }
    const int of_stage =
        CutStage(desc, stage, place_units, m, blocks, shape.stages[s]);
    shape.stages[s].second =
        !forms.is_plain && !SameForm(QuantFormOf(gemm.weight), form);
    tiles[s % 2] = std::max<int64_t>(tiles[s % 2], of_stage);
    if (shape.stages[s].rounds > 1) tiles[1] = tiles[0];
    units = std::max(units, shape.stages[s].units);
    units_of_row = std::max(units_of_row, UnitsOfRow(desc, stage));
  }
  const int64_t tile_bytes = int64_t{ChainPartials(m)} * sizeof(float);
  if ((tiles[0] + tiles[1]) * tile_bytes > kMostShared) return false;
  ChainPlaces& at = shape.at;
  at.squares = Align(kChainBarriers + sizeof(ChainShape));
  at.partials[0] =
      Align(at.squares + int64_t{2} * kChainRows * kChainWarps * sizeof(float));
  at.partials[1] = at.partials[0] + Align(tiles[0] * tile_bytes);
  at.choice = at.factors = at.facts =
      at.partials[1] + Align(tiles[1] * tile_bytes);
  ChainMixture& mixture = shape.mixture;
  if (const int input = CutMixture(desc, m, mixture); input >= 0) {
    const int64_t logits = int64_t{blocks} * kMostChainLogits;
    if (LogitWords(desc) > logits) return false;
    const ChainStage& outputs = shape.stages[input + 1];
    at.factors += Align(int64_t{sizeof(ChainChoice)} +
                        mixture.num_experts * (int64_t{sizeof(uint64_t)} +
                                               m * int64_t{sizeof(float)}));
    at.facts = at.factors +
               Align(ChainRowFactors(outputs, mixture) *
                     (desc.outputs_biased ? 2 : 1) * int64_t{sizeof(float)});
  }
  const int facts =
      forms.is_plain ? 1 : ChainFactsOfX(form.codes, form.group, form.has_min);
  at.x = at.facts + Align(int64_t{units} * m * 4 * facts);
  // Rows 16 bytes more than a multiple of 128 apart: ldmatrix meets all banks.
  at.x_stride = static_cast<uint32_t>(units_of_row * plane_bytes + 16);
  at.ring = Align(at.x + int64_t{m} * ChainPlanes(forms.x) * at.x_stride +
                  (mixture.input >= 0 || forms.is_plain ? plane_bytes : 0));
  // As swizzled boxes lie.
  if (forms.is_plain) at.ring = (at.ring + 1023) / 1024 * 1024;
  if (at.ring >= kMostShared) return false;
  shape.m = m;
  const auto room = static_cast<int>(kMostShared - at.ring);
  const int place = place_units * most_unit_bytes;
  // A place is always of the same warps. Otherwise a warp could wait for a
  // place whose copy before, of others, has not come, and take that one's
  // parity for its own.
  const int parts = kChainWarps / place_units;
  shape.ring = std::min(room / place, kMostChainRing) / parts * parts;
  at.bytes = at.ring + static_cast<uint32_t>(shape.ring * place);
  return shape.ring >= std::max(kLeastRing, 2 * parts);
}

namespace {

// Of weights as they lie in files.
absl::Status FillMaps(const LinearChainParams& params, const ChainShape& shape,
                      ChainMaps& maps) {
  const auto map_of = [](const TensorView& w, int units) {
    return MapOfWeights(w, kQuantRows, 1, units * kPlainBoxes);
  };
  for (int s = 0; s < shape.count; ++s) {
    INLAY_ASSIGN_OR_RETURN(
        maps.stages[s], map_of(params.stages[s].w, shape.stages[s].box_units));
  }
  const ChainMixture& mixture = shape.mixture;
  if (mixture.input < 0 || !mixture.has_shared()) return absl::OkStatus();
  const ChainStage* stages = &shape.stages[mixture.input];
  INLAY_ASSIGN_OR_RETURN(maps.shared[0],
                         map_of(params.shared_input, stages[0].box_units));
  INLAY_ASSIGN_OR_RETURN(maps.shared[1],
                         map_of(params.shared_output, stages[1].box_units));
  return absl::OkStatus();
}

}  // namespace

absl::Status RunLinearChainSm90(const LinearChainDesc& desc,
                                const LinearChainParams& params,
                                Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  ChainShape shape = {};
  const bool normalised = desc.stages.front().normalised;
  const auto m =
      static_cast<int>((normalised ? params.hidden : params.x).rows());
  ChainFormPair forms;
  if (m > kChainRows || !FormsOfChain(desc, forms) ||
      !PlaceChain(desc, m, cuda.num_sms(), shape)) {
    return absl::InternalError(FormattedString(
        "linear_chain: %d rows of x are more than the kernel serves", m));
  }
  const auto elements = [](const TensorView& view) {
    return static_cast<int64_t>(view.row_stride_bytes) /
           (view.dtype == DType::kF32 ? 4 : 2);
  };
  shape.count = static_cast<int>(desc.stages.size());
  shape.hidden = reinterpret_cast<float*>(params.hidden.data);
  shape.hidden_stride = elements(params.hidden);
  // Stages of codes that are alone have a kernel that hands nothing on.
  const bool hands_on = shape.count > 1 || forms.is_plain;
  shape.exchange =
      hands_on ? static_cast<ChainExchange*>(params.exchange) : nullptr;
  int64_t handed = 0;  // bytes
  struct Handed {
    int at = -1;
    int stride = 0;
  } hidden, given;  // by the last stage that did
  TensorView x = params.x;
  for (size_t s = 0; s < desc.stages.size(); ++s) {
    const LinearChainStage& from = desc.stages[s];
    const LinearChainParams::Stage& with = params.stages[s];
    ChainStage& stage = shape.stages[s];
    stage.w = reinterpret_cast<const uint8_t*>(with.w.data);
    if (!forms.is_plain) {
      stage.tile_bytes =
          QuantTileBytes(QuantFormOf(from.gemm.weight), from.gemm.k);
    }
    const bool is_output = from.experts == ChainExperts::kOutput;
    stage.bias = is_output && !desc.outputs_biased ? nullptr : with.bias;
    stage.mean = 1.0f / static_cast<float>(stage.k);
    if (from.same_x) {
      const ChainStage& before = shape.stages[s - 1];
      stage.norm_weight = before.norm_weight;
      stage.epsilon = before.epsilon;
      stage.from = before.from;
      stage.from_stride = before.from_stride;
      stage.x = before.x;
      stage.x_stride = before.x_stride;
    } else {
      stage.norm_weight = with.norm_weight;
      stage.epsilon = with.epsilon;
      const Handed& read = from.normalised ? hidden : given;
      stage.from = read.at;
      stage.from_stride = read.stride;
      if (!from.normalised) {
        stage.x = x.data;
        stage.x_stride = elements(x);
      }
    }
    if (!from.adds) {
      stage.y = with.y.data;
      stage.y_stride = elements(with.y);
    }
    x = with.y;
    stage.to = -1;
    const int64_t row_bytes = HandedOnBytes(desc, s, m);
    if (row_bytes == 0) continue;
    const Handed to = {static_cast<int>(handed), static_cast<int>(row_bytes)};
    stage.to = to.at;
    stage.to_stride = to.stride;
    (from.adds ? hidden : given) = to;
    handed += WholeHanded(row_bytes * m);
  }
  const int input = shape.mixture.input;
  if (input >= 0) {
    ChainMixture& mixture = shape.mixture;
    mixture.router = params.router.data;
    mixture.bias = params.router_bias;
    mixture.correction = params.correction;
    mixture.logits = static_cast<int>(handed);
    handed += WholeHanded(LogitWords(desc) * m * 4);
    const auto at = [](const TensorView& view) {
      return reinterpret_cast<const uint8_t*>(view.data);
    };
    mixture.shared_input = at(params.shared_input);
    mixture.shared_output = at(params.shared_output);
    if (desc.shared_gated) mixture.shared_gate = params.shared_gate.data;
  }
  shape.handed = static_cast<uint32_t>(handed);
  const DType type = desc.stages.front().gemm.activation;
  if (forms.is_plain) {
    ChainMaps maps = {};
    INLAY_RETURN_IF_ERROR(FillMaps(params, shape, maps));
    return LaunchChainPlain(shape, maps, type, cuda);
  }
  shape.levels = ChainLevelsOf(forms.first, forms.x);
  if (forms.x == ChainX::kFloats) {
    return LaunchChainFloats(shape, type, forms, cuda);
  }
  if (forms.is_mixed) return LaunchChainMixed(shape, type, forms, cuda);
  switch (forms.first.codes) {
    case QuantCodes::kInt8:
      return LaunchChainInt8(shape, type, forms, cuda);
    case QuantCodes::kTable4:
      return LaunchChainTable4(shape, type, forms, cuda);
    case QuantCodes::kLinear6:
      return LaunchChainLinear6(shape, type, forms, cuda);
    default:
      return LaunchChainLinear4(shape, type, forms, cuda);
  }
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
