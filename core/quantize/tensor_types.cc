#include "core/quantize/tensor_types.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "core/formats/describe.h"
#include "core/formats/gguf_types.h"
#include "kernels/cpu_float.h"
#include "kernels/quant/quant.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct MixtureRow {
  std::string_view name;
  QuantizedType type;
};

constexpr MixtureRow kMixtures[] = {
    {"q3_k_s", {DType::kQ3_K, Mixture::kSmall, 11}},
    {"q3_k_m", {DType::kQ3_K, Mixture::kMedium, 12}},
    {"q3_k_l", {DType::kQ3_K, Mixture::kLarge, 13}},
    {"q4_k_s", {DType::kQ4_K, Mixture::kSmall, 14}},
    {"q4_k_m", {DType::kQ4_K, Mixture::kMedium, 15}},
    {"q5_k_s", {DType::kQ5_K, Mixture::kSmall, 16}},
    {"q5_k_m", {DType::kQ5_K, Mixture::kMedium, 17}},
};

// llama.cpp's numbers of file types with one type for all.
constexpr struct {
  DType dtype;
  uint32_t number;
} kFileTypes[] = {
    {DType::kF32, 0},      {DType::kF16, 1},     {DType::kQ4_0, 2},
    {DType::kQ4_1, 3},     {DType::kQ8_0, 7},    {DType::kQ5_0, 8},
    {DType::kQ5_1, 9},     {DType::kQ2_K, 10},   {DType::kQ3_K, 11},
    {DType::kQ4_K, 14},    {DType::kQ5_K, 16},   {DType::kQ6_K, 18},
    {DType::kIQ2_XXS, 19}, {DType::kIQ2_XS, 20}, {DType::kIQ3_XXS, 23},
    {DType::kIQ1_S, 24},   {DType::kIQ4_NL, 25}, {DType::kIQ3_S, 26},
    {DType::kIQ2_S, 28},   {DType::kIQ4_XS, 30}, {DType::kIQ1_M, 31},
    {DType::kBF16, 32},    {DType::kTQ1_0, 36},  {DType::kTQ2_0, 37},
};

bool CanWrite(DType dtype) {
  const BlockCodec* codec = FindBlockCodec(dtype);
  return codec != nullptr && codec->encode != nullptr &&
         GgmlTypeFromDType(dtype).has_value();
}

std::optional<DType> FindType(std::string_view name) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (DTypeName(dtype) == name) return dtype;
  }
  const std::optional<DType> dtype = DTypeFromName(name);
  if (dtype.has_value() && CanWrite(*dtype)) return dtype;
  return std::nullopt;
}

std::string KnownTypes(bool mixtures) {
  std::string known = "f32, f16, bf16";
  for (const BlockCodec* codec : BlockCodecs()) {
    if (CanWrite(codec->dtype)) {
      known += FormattedString(", %s", DTypeName(codec->dtype));
    }
  }
  if (!mixtures) return known;
  for (const MixtureRow& row : kMixtures) known += ", " + std::string(row.name);
  return known + CheckpointTypeNames();
}

// Layers that gain most from more bits: the first and last eighth, and every
// third between.
bool GetsMoreBits(int layer, int layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 ||
         (layer - layers / 8) % 3 == 2;
}

// Of "blk.12.attn_q.weight": 12 and "attn_q.weight"; of others -1.
struct LayerPart {
  int layer = -1;
  std::string_view part;
};
LayerPart SplitName(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return {-1, name};
  name.remove_prefix(kPrefix.size());
  LayerPart result;
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + name.size(), result.layer);
  name.remove_prefix(static_cast<size_t>(end - name.data()));
  if (error != std::errc() || name.empty()) return {-1, name};
  result.part = name.substr(1);
  // Experts' as the layer's own.
  if (result.part.starts_with("ffn_down_")) result.part = "ffn_down.weight";
  return result;
}

DType MixtureType3(Mixture mixture, const LayerPart& where, int layers) {
  if (mixture == Mixture::kSmall) return DType::kQ3_K;
  const bool large = mixture == Mixture::kLarge;
  if (where.part == "attn_v.weight") {
    return large || where.layer < 2 ? DType::kQ5_K : DType::kQ4_K;
  }
  if (where.part == "ffn_down.weight") {
    return large || where.layer < layers / 16 ? DType::kQ5_K : DType::kQ4_K;
  }
  if (where.part == "attn_output.weight") {
    return large ? DType::kQ5_K : DType::kQ4_K;
  }
  return where.part == "attn_qkv.weight" ? DType::kQ4_K : DType::kQ3_K;
}

DType MixtureType4(Mixture mixture, const LayerPart& where, int layers) {
  const bool down = where.part == "ffn_down.weight";
  const bool value = where.part == "attn_v.weight";
  if (mixture == Mixture::kSmall) {
    const bool more =
        (value && where.layer < 4) || (down && where.layer < layers / 8);
    return more ? DType::kQ5_K : DType::kQ4_K;
  }
  if (where.part == "attn_qkv.weight") return DType::kQ5_K;
  return (value || down) && GetsMoreBits(where.layer, layers) ? DType::kQ6_K
                                                              : DType::kQ4_K;
}

DType MixtureType5(Mixture mixture, const LayerPart& where, int layers) {
  if (mixture == Mixture::kSmall) return DType::kQ5_K;
  if (where.part == "attn_qkv.weight") return DType::kQ6_K;
  const bool counts =
      where.part == "ffn_down.weight" || where.part == "attn_v.weight";
  return counts && GetsMoreBits(where.layer, layers) ? DType::kQ6_K
                                                     : DType::kQ5_K;
}

DType WantedType(const QuantizedType& type, const TensorRole& role) {
  if (type.mixture == Mixture::kNone) return type.base;
  if (role.is_head) return DType::kQ6_K;
  const LayerPart where = SplitName(role.gguf);
  if (where.layer < 0) return type.base;
  switch (type.base) {
    case DType::kQ3_K:
      return MixtureType3(type.mixture, where, role.num_layers);
    case DType::kQ4_K:
      return MixtureType4(type.mixture, where, role.num_layers);
    default:
      return MixtureType5(type.mixture, where, role.num_layers);
  }
}

bool Fits(DType dtype, int64_t row) {
  return row % GetFormatInfo(dtype).block_elements == 0;
}

// The type of small blocks that keeps about as much.
DType SmallBlocks(DType dtype) {
  switch (dtype) {
    case DType::kTQ1_0:
    case DType::kTQ2_0:
      return DType::kQ4_0;
    case DType::kQ4_K:
      return DType::kQ5_0;
    case DType::kQ5_K:
      return DType::kQ5_1;
    case DType::kQ6_K:
      return DType::kQ8_0;
    default:
      return DType::kIQ4_NL;
  }
}

DType Fitting(DType wanted, int64_t row) {
  if (Fits(wanted, row)) return wanted;
  const DType small = SmallBlocks(wanted);
  return Fits(small, row) ? small : DType::kF16;
}

// Readers want vectors, learned positions, what routes to experts and the taps
// of convolutions as they are, llama.cpp's and ours; llama.cpp leaves Gemma
// 3n's streams and augmented residuals, too. Biases of experts have a row for
// each.
bool StaysWide(std::string_view gguf) {
  if (!gguf.ends_with(".weight") || gguf.ends_with("_norm.weight")) return true;
  for (const std::string_view part :
       {"position_embd.", ".ffn_gate_inp.", ".ssm_conv1d", ".shortconv.conv.",
        ".indexer.proj.", "per_layer_model_proj.", "altup_", ".laurel_",
        ".time_mix_w1.", ".time_mix_w2.", ".time_mix_lerp_fused."}) {
    if (gguf.find(part) != gguf.npos) return true;
  }
  return false;
}

// RWKV-7's small products, which llama.cpp does not quantise.
bool IsOfLowRank(std::string_view gguf) {
  for (const std::string_view part :
       {".time_mix_a1.", ".time_mix_a2.", ".time_mix_v1.", ".time_mix_v2.",
        ".time_mix_g1.", ".time_mix_g2."}) {
    if (gguf.find(part) != gguf.npos) return true;
  }
  return false;
}

absl::StatusOr<bool> MatchesRole(const TensorOverride& given,
                                 const TensorRole& role) {
  if (MatchesPattern(given.pattern, role.published)) return true;
  if (role.parts.size() < 2) return false;
  const auto matching = std::count_if(
      role.parts.begin(), role.parts.end(), [&](const std::string& part) {
        return MatchesPattern(given.pattern, part);
      });
  if (matching == 0 || matching == std::ssize(role.parts)) return matching > 0;
  return absl::InvalidArgumentError(FormattedString(
      "the pattern %s is of %d of the %d experts in %s, allowed: all, which "
      "have one type in a GGUF file",
      Quoted(given.pattern), matching, std::ssize(role.parts),
      Quoted(role.published)));
}

struct NamedType {
  std::string_view pattern;
  std::string_view type;
};

absl::StatusOr<NamedType> SplitOverride(std::string_view text) {
  const size_t equals = text.rfind('=');
  if (equals == text.npos || equals == 0) {
    return absl::InvalidArgumentError(FormattedString(
        "a tensor's type is %s, allowed: PATTERN=TYPE", Quoted(text)));
  }
  return NamedType{text.substr(0, equals), text.substr(equals + 1)};
}

}  // namespace

absl::StatusOr<QuantizedType> ParseQuantizedType(std::string_view name) {
  for (const MixtureRow& row : kMixtures) {
    if (row.name == name) return row.type;
  }
  const auto checkpoint = FindCheckpointType(name);
  if (checkpoint.has_value()) {
    constexpr int64_t kWhole = 128;  // rows of whole blocks, if they are
    return QuantizedType{*checkpoint->BlockType(kWhole), Mixture::kNone,
                         std::nullopt, checkpoint};
  }
  const std::optional<DType> dtype = FindType(name);
  if (!dtype.has_value()) {
    return absl::InvalidArgumentError(FormattedString(
        "the type is %s, allowed: %s", Quoted(name), KnownTypes(true)));
  }
  QuantizedType type = {*dtype, Mixture::kNone, std::nullopt};
  for (const auto& row : kFileTypes) {
    if (row.dtype == *dtype) type.file_type = row.number;
  }
  return type;
}

absl::StatusOr<TensorOverride> ParseTensorOverride(std::string_view text) {
  INLAY_ASSIGN_OR_RETURN(const NamedType named, SplitOverride(text));
  const std::optional<DType> dtype = FindType(named.type);
  if (!dtype.has_value()) {
    return absl::InvalidArgumentError(FormattedString(
        "the type of tensors %s is %s, allowed: %s", Quoted(named.pattern),
        Quoted(named.type), KnownTypes(false)));
  }
  return TensorOverride{std::string(named.pattern), *dtype};
}

absl::StatusOr<CheckpointOverride> ParseCheckpointOverride(
    std::string_view text, std::string_view type_name,
    const CheckpointType& type) {
  INLAY_ASSIGN_OR_RETURN(const NamedType named, SplitOverride(text));
  constexpr CheckpointKind kGroups = CheckpointKind::kCompressedTensors;
  const bool has_groups = type.kind == kGroups;
  CheckpointOverride given = {std::string(named.pattern), std::nullopt};
  const auto other = FindCheckpointType(named.type);
  if (has_groups && other.has_value() && other->kind == kGroups) {
    given.type = other;
    return given;
  }
  const std::optional<DType> dtype = FindType(named.type);
  if (dtype.has_value() && IsPlainFloat(*dtype)) return given;
  return absl::InvalidArgumentError(FormattedString(
      "the type of tensors %s is %s, allowed beside %s: f32, f16 or bf16, "
      "which leave them as they are%s",
      Quoted(named.pattern), named.type, type_name,
      has_groups ? CheckpointTypeNames(kGroups) : ""));
}

absl::Status CheckPatterns(absl::Span<const std::string> tensor_types,
                           absl::Span<const std::string_view> names) {
  for (const std::string& text : tensor_types) {
    INLAY_ASSIGN_OR_RETURN(const NamedType named, SplitOverride(text));
    const bool found =
        std::any_of(names.begin(), names.end(), [&](std::string_view name) {
          return MatchesPattern(named.pattern, name);
        });
    if (found) continue;
    return absl::InvalidArgumentError(FormattedString(
        "the pattern %s is of no tensor, allowed: published names, with * and "
        "?, such as %s; inlay inspect lists them",
        Quoted(named.pattern), names.empty() ? "" : names.front()));
  }
  return absl::OkStatus();
}

// Greedy, going back to the last star only: linear in practice, at worst the
// product of the lengths.
absl::StatusOr<ChosenType> ChooseTensorType(
    const QuantizedType& type, absl::Span<const TensorOverride> overrides,
    const TensorRole& role) {
  if (role.is_vector || role.shape.size() < 2 || StaysWide(role.gguf)) {
    return ChosenType{DType::kF32, DType::kF32};
  }
  DType wanted = WantedType(type, role);
  if (IsOfLowRank(role.gguf) && !IsPlainFloat(wanted)) wanted = DType::kBF16;
  for (const TensorOverride& given : overrides) {
    INLAY_ASSIGN_OR_RETURN(const bool matches, MatchesRole(given, role));
    if (matches) wanted = given.dtype;
  }
  return ChosenType{Fitting(wanted, role.shape.back()), wanted};
}

}  // namespace inlay
