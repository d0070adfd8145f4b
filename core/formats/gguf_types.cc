#include "core/formats/gguf_types.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "memory/formatted_string.h"

namespace inlay {
namespace {

struct GgmlType {
  uint32_t number;
  std::string_view name;  // in formats.def, where it is there
};

// In the order of their numbers. The last ones of a line are types that ggml
// has removed or keeps for activations: named in messages only.
constexpr GgmlType kTypes[] = {
    {0, "f32"},         {1, "f16"},         {2, "q4_0"},
    {3, "q4_1"},        {4, "q4_2"},        {5, "q4_3"},
    {6, "q5_0"},        {7, "q5_1"},        {8, "q8_0"},
    {9, "q8_1"},        {10, "q2_k"},       {11, "q3_k"},
    {12, "q4_k"},       {13, "q5_k"},       {14, "q6_k"},
    {15, "q8_k"},       {16, "iq2_xxs"},    {17, "iq2_xs"},
    {18, "iq3_xxs"},    {19, "iq1_s"},      {20, "iq4_nl"},
    {21, "iq3_s"},      {22, "iq2_s"},      {23, "iq4_xs"},
    {24, "i8"},         {25, "i16"},        {26, "i32"},
    {27, "i64"},        {28, "f64"},        {29, "iq1_m"},
    {30, "bf16"},       {31, "q4_0_4_4"},   {32, "q4_0_4_8"},
    {33, "q4_0_8_8"},   {34, "tq1_0"},      {35, "tq2_0"},
    {36, "iq4_nl_4_4"}, {37, "iq4_nl_4_8"}, {38, "iq4_nl_8_8"},
    {39, "mxfp4"},      {40, "nvfp4"},      {41, "q1_0"},
    {42, "q2_0"},
};

std::string KnownNames() {
  std::string names;
  for (const GgmlType& type : kTypes) {
    if (!DTypeFromName(type.name).has_value()) continue;
    if (!names.empty()) names += ", ";
    names += type.name;
  }
  return names;
}

}  // namespace

absl::StatusOr<DType> DTypeFromGgmlType(uint32_t type) {
  const auto found =
      std::find_if(std::begin(kTypes), std::end(kTypes),
                   [type](const GgmlType& row) { return row.number == type; });
  const std::string_view name =
      found == std::end(kTypes) ? "unknown" : found->name;
  const std::optional<DType> dtype = DTypeFromName(name);
  if (dtype.has_value()) return *dtype;
  return absl::UnimplementedError(FormattedString(
      "ggml type %d (%s), allowed: %s", type, name, KnownNames()));
}

std::optional<uint32_t> GgmlTypeFromDType(DType dtype) {
  for (const GgmlType& row : kTypes) {
    if (row.name == DTypeName(dtype)) return row.number;
  }
  return std::nullopt;
}

}  // namespace inlay
