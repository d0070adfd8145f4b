#include "core/formats/bitsandbytes_layer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/formats/describe.h"
#include "core/formats/stored_tensor.h"
#include "core/json/json.h"
#include "core/json/python_json.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kRun = 64;  // elements of our blocks
constexpr int64_t kCodedScales = 256;
constexpr int64_t kMaxStateBytes = 1 << 16;

// The levels that nf4 and bnb_fp4 have (kernels/quant/), by code.
constexpr float kNf4Map[16] = {
    -1.0f,         -0.696192801f, -0.525073051f,  -0.394917488f,
    -0.284441382f, -0.18477343f,  -0.0910500363f, 0.0f,
    0.0795802996f, 0.160930201f,  0.246112302f,   0.337915242f,
    0.440709829f,  0.562617004f,  0.722956836f,   1.0f};
constexpr float kFp4Map[16] = {
    0.0f, 1.0f / 192,  2.0f / 3,  1.0f,  1.0f / 3,  0.5f,  1.0f / 6,  0.25f,
    0.0f, -1.0f / 192, -2.0f / 3, -1.0f, -1.0f / 3, -0.5f, -1.0f / 6, -0.25f};

int64_t CountOf(const WeightInfo& tensor) {
  return static_cast<int64_t>(tensor.bytes / RowBytes(tensor.dtype, 1));
}

int64_t DivideUp(int64_t a, int64_t b) { return (a - 1) / b + 1; }

absl::Status CheckCount(const WeightInfo& tensor, int64_t count) {
  if (CountOf(tensor) == count) return absl::OkStatus();
  return absl::InvalidArgumentError(FormattedString(
      "tensor %s has %d elements; its layer's state asks for %d",
      Quoted(tensor.name), CountOf(tensor), count));
}

// Elements [first, first + count) of a tensor of floats, whatever its shape.
absl::Status ReadFlat(const WeightSource& stored, const WeightInfo& tensor,
                      int64_t first, int64_t count, float* dst) {
  WeightInfo flat = tensor;
  flat.shape = {CountOf(tensor), 1};
  return ReadFloats(stored, flat, first, count, 0, 1, dst);
}

absl::StatusOr<std::vector<float>> ReadFinite(const WeightSource& stored,
                                              const std::string& name,
                                              int64_t count) {
  INLAY_ASSIGN_OR_RETURN(const WeightInfo* tensor,
                         StoredTensor(stored, name, {DType::kF32}));
  INLAY_RETURN_IF_ERROR(CheckCount(*tensor, count));
  INLAY_RETURN_IF_ERROR(CheckFiniteScales(stored, *tensor));
  std::vector<float> values(static_cast<size_t>(count));
  INLAY_RETURN_IF_ERROR(ReadFlat(stored, *tensor, 0, count, values.data()));
  return values;
}

absl::StatusOr<Json> ReadStateJson(const WeightSource& stored,
                                   const std::string& name) {
  INLAY_ASSIGN_OR_RETURN(const WeightInfo* tensor,
                         StoredTensor(stored, name, {DType::kU8}));
  if (static_cast<int64_t>(tensor->bytes) > kMaxStateBytes) {
    return absl::InvalidArgumentError(
        FormattedString("tensor %s has %d bytes; a state has at most %d",
                        Quoted(name), tensor->bytes, kMaxStateBytes));
  }
  std::string text(tensor->bytes, '\0');
  INLAY_RETURN_IF_ERROR(stored.Read(
      *tensor, 0,
      absl::MakeSpan(reinterpret_cast<std::byte*>(text.data()), text.size())));
  return ParsePythonJson(text, Quoted(name));
}

// Of the state's JSON.
absl::Status BadState(std::string_view key, const Json& got,
                      std::string_view allowed) {
  return absl::InvalidArgumentError(FormattedString(
      "%s is %s; it must be %s", key, Quoted(ShownJson(got)), allowed));
}

// A size of at least 1, which must be there.
absl::StatusOr<int64_t> SizeSetting(const Json& json, std::string_view key) {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (JsonFind(json, key) == nullptr) {
    return BadState(key, Json(), "there");
  }
  return JsonInt(json, key, 0, 1, kMost);
}

// "shape", "blocksize" and the type once more.
absl::Status ReadSizes(const Json& json, const std::string& layer,
                       std::string_view type, BnbState& state) {
  INLAY_ASSIGN_OR_RETURN(const std::string own,
                         JsonString(json, "quant_type", type));
  if (own != type) {
    return BadState("quant_type", json["quant_type"],
                    "what its tensor's name says");
  }
  const Json* shape = JsonFind(json, "shape");
  const auto is_size = [&](size_t i, int64_t most) {
    return (*shape)[i].is_number_unsigned() &&
           (*shape)[i].get<uint64_t>() <= static_cast<uint64_t>(most);
  };
  const bool is_matrix =
      shape != nullptr && shape->is_array() && shape->size() == 2 &&
      is_size(0, kMaxQuantizedOutputs) && is_size(1, kMaxQuantizedColumns);
  if (!is_matrix) {
    return BadState("shape", shape == nullptr ? Json() : *shape,
                    "two sizes, outputs and columns");
  }
  state.n = (*shape)[0].get<int64_t>();
  state.k = (*shape)[1].get<int64_t>();
  INLAY_RETURN_IF_ERROR(CheckLayerSize(layer, state.n, state.k));
  INLAY_ASSIGN_OR_RETURN(state.block_size, SizeSetting(json, "blocksize"));
  return absl::OkStatus();
}

const float* MapOf(CodeKind kind) {
  return kind == CodeKind::kNf4 ? kNf4Map : kFp4Map;
}

absl::Status CheckMap(const WeightSource& stored, const std::string& layer,
                      const BnbState& state) {
  INLAY_ASSIGN_OR_RETURN(const std::vector<float> map,
                         ReadFinite(stored, layer + ".weight.quant_map", 16));
  for (size_t i = 0; i < 16; ++i) {
    const float known = MapOf(state.kind)[i];
    // Other versions' may be off by roundings.
    if (std::abs(map[i] - known) <= 1e-6f) continue;
    return absl::UnimplementedError(FormattedString(
        "layer %s has the level %g for code %d; supported is %g", Quoted(layer),
        map[i], i, known));
  }
  return absl::OkStatus();
}

// Scales that are coded themselves.
absl::Status ReadNested(const WeightSource& stored, const std::string& layer,
                        const Json& json, int64_t scales, BnbState& state) {
  INLAY_ASSIGN_OR_RETURN(state.nested_block_size,
                         SizeSetting(json, "nested_blocksize"));
  if (JsonFind(json, "nested_offset") == nullptr) {
    return BadState("nested_offset", Json(), "there");
  }
  INLAY_ASSIGN_OR_RETURN(const double offset,
                         JsonNumber(json, "nested_offset", 0.0, -1e30, 1e30));
  state.offset = static_cast<float>(offset);
  INLAY_ASSIGN_OR_RETURN(
      state.map,
      ReadFinite(stored, layer + ".weight.nested_quant_map", kCodedScales));
  const std::string name = layer + ".weight.nested_absmax";
  INLAY_ASSIGN_OR_RETURN(
      state.nested,
      ReadFinite(stored, name, DivideUp(scales, state.nested_block_size)));
  float most = 0.0f;
  for (const float value : state.map) most = std::max(most, std::abs(value));
  for (const float value : state.nested) {
    if (std::isfinite(most * std::abs(value) + std::abs(state.offset)))
      continue;
    return absl::InvalidArgumentError(
        FormattedString("tensor %s holds %g, which makes scales infinite",
                        Quoted(name), value));
  }
  return absl::OkStatus();
}

Grouping RunsOf(const BnbState& state) {
  Grouping grouping;
  grouping.k = state.k;
  if (!state.in_blocks()) return grouping;
  grouping.groups = state.k / kRun;
  grouping.group_size = kRun;
  grouping.block = kRun;
  return grouping;
}

}  // namespace

bool BnbState::in_blocks() const {
  return block_size % kRun == 0 && k % kRun == 0;
}

absl::StatusOr<BnbState> ReadBnbState(const WeightSource& stored,
                                      const std::string& layer,
                                      std::string_view type) {
  BnbState state;
  state.kind = type == "nf4" ? CodeKind::kNf4 : CodeKind::kBnbFp4;
  const std::string weight = layer + ".weight";
  const std::string name =
      FormattedString("%s.quant_state.bitsandbytes__%s", weight, type);
  INLAY_ASSIGN_OR_RETURN(const Json json, ReadStateJson(stored, name));
  INLAY_RETURN_IF_ERROR(
      InFile(Quoted(name), ReadSizes(json, layer, type, state)));
  // "bnb_4bit_quant_storage" may call the bytes anything.
  INLAY_ASSIGN_OR_RETURN(
      state.codes, StoredTensor(stored, weight,
                                {DType::kU8, DType::kI8, DType::kF16,
                                 DType::kBF16, DType::kF32, DType::kF64}));
  const auto bytes = static_cast<uint64_t>(DivideUp(state.n * state.k, 2));
  if (state.codes->bytes != bytes) {
    return absl::InvalidArgumentError(FormattedString(
        "tensor %s has %d bytes; its state's %d by %d codes take %d",
        Quoted(weight), state.codes->bytes, state.n, state.k, bytes));
  }
  INLAY_RETURN_IF_ERROR(CheckMap(stored, layer, state));
  INLAY_ASSIGN_OR_RETURN(
      state.absmax,
      StoredTensor(stored, weight + ".absmax",
                   {DType::kF32, DType::kF16, DType::kBF16, DType::kU8}));
  const int64_t scales = DivideUp(state.n * state.k, state.block_size);
  INLAY_RETURN_IF_ERROR(CheckCount(*state.absmax, scales));
  INLAY_RETURN_IF_ERROR(
      state.absmax->dtype == DType::kU8
          ? InFile(Quoted(name), ReadNested(stored, layer, json, scales, state))
          : CheckFiniteScales(stored, *state.absmax));
  return state;
}

BnbLayer::BnbLayer(const std::string& layer, BnbState state,
                   std::shared_ptr<const WeightSource> stored)
    : QuantizedLayer(layer, state.in_blocks() ? state.kind : CodeKind::kFloat,
                     state.n, RunsOf(state)),
      state_(std::move(state)),
      stored_(std::move(stored)) {}

absl::StatusOr<std::vector<uint8_t>> BnbLayer::ReadCodes(int64_t begin,
                                                         int64_t count) const {
  const int64_t first = begin / 2;
  std::vector<std::byte> bytes(
      static_cast<size_t>(DivideUp(begin + count, 2) - first));
  INLAY_RETURN_IF_ERROR(stored_->Read(
      *state_.codes, static_cast<uint64_t>(first), absl::MakeSpan(bytes)));
  std::vector<uint8_t> codes(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = begin + i;
    const auto both =
        static_cast<uint8_t>(bytes[static_cast<size_t>(at / 2 - first)]);
    // The upper nibble comes first.
    codes[static_cast<size_t>(i)] = at % 2 == 0 ? both >> 4 : both & 15;
  }
  return codes;
}

absl::StatusOr<std::vector<float>> BnbLayer::ReadScales(int64_t first,
                                                        int64_t count) const {
  std::vector<float> scales(static_cast<size_t>(count));
  if (state_.absmax->dtype != DType::kU8) {
    INLAY_RETURN_IF_ERROR(
        ReadFlat(*stored_, *state_.absmax, first, count, scales.data()));
    return scales;
  }
  std::vector<std::byte> coded(scales.size());
  INLAY_RETURN_IF_ERROR(stored_->Read(
      *state_.absmax, static_cast<uint64_t>(first), absl::MakeSpan(coded)));
  for (int64_t b = 0; b < count; ++b) {
    const auto at = static_cast<size_t>(b);
    const auto nested =
        static_cast<size_t>((first + b) / state_.nested_block_size);
    const float product =
        state_.map[static_cast<size_t>(coded[at])] * state_.nested[nested];
    scales[at] = product + state_.offset;
  }
  return scales;
}

absl::Status BnbLayer::Load(Band& band) const {
  const int64_t begin = band.first * state_.k;
  const int64_t count = band.rows * state_.k;
  INLAY_ASSIGN_OR_RETURN(std::vector<uint8_t> codes, ReadCodes(begin, count));
  const int64_t first = begin / state_.block_size;
  const int64_t blocks = (begin + count - 1) / state_.block_size + 1 - first;
  INLAY_ASSIGN_OR_RETURN(const std::vector<float> scales,
                         ReadScales(first, blocks));
  const auto scale_of = [&](int64_t element) {
    return scales[static_cast<size_t>((begin + element) / state_.block_size -
                                      first)];
  };
  if (state_.in_blocks()) {
    band.codes = std::move(codes);
    for (int64_t run = 0; run < count / kRun; ++run) {
      band.scales[static_cast<size_t>(run)] = scale_of(run * kRun);
    }
    return absl::OkStatus();
  }
  const float* map = MapOf(state_.kind);
  for (int64_t i = 0; i < count; ++i) {
    band.values[static_cast<size_t>(i)] =
        map[codes[static_cast<size_t>(i)]] * scale_of(i);
  }
  return absl::OkStatus();
}

}  // namespace inlay
