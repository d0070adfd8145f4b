#include "core/quantize/checkpoint_types.h"

#include "memory/formatted_string.h"

namespace inlay {
namespace {

using enum CheckpointKind;
using enum CheckpointCodes;
using enum CheckpointInputs;

constexpr struct {
  std::string_view name;
  CheckpointType type;
} kTypes[] = {
    {"u4_g128", {kGptq, kU4, 128}},
    {"u4_g64", {kGptq, kU4, 64}},
    {"u4_g32", {kGptq, kU4, 32}},
    {"u4_channel", {kGptq, kU4, kGroupIsChannel}},
    {"u4_g128_sym", {kGptq, kU4, 128, true}},
    {"u4_g64_sym", {kGptq, kU4, 64, true}},
    {"u4_g32_sym", {kGptq, kU4, 32, true}},
    {"u4_channel_sym", {kGptq, kU4, kGroupIsChannel, true}},
    {"i8_g128", {kGptq, kI8, 128}},
    {"i8_g64", {kGptq, kI8, 64}},
    {"i8_g32", {kGptq, kI8, 32}},
    {"i8_channel", {kGptq, kI8, kGroupIsChannel}},
    {"i8_g128_sym", {kGptq, kI8, 128, true}},
    {"i8_g64_sym", {kGptq, kI8, 64, true}},
    {"i8_g32_sym", {kGptq, kI8, 32, true}},
    {"i8_channel_sym", {kGptq, kI8, kGroupIsChannel, true}},
    {"awq_g128", {kAwq, kU4, 128}},
    {"awq_g64", {kAwq, kU4, 64}},
    {"awq_g32", {kAwq, kU4, 32}},
    {"nf4", {kBitsAndBytes, kNf4, 64}},
    {"fp4", {kBitsAndBytes, kFp4, 64}},
    {"w8a8_int8", {kCompressedTensors, kI8, kGroupIsChannel, true, kToken}},
    {"w8a8_fp8", {kCompressedTensors, kF8, kGroupIsChannel, true, kToken}},
    {"w8a8_fp8_tensor",
     {kCompressedTensors, kF8, kGroupIsTensor, true, kToken}},
    {"w8a8_fp8_static",
     {kCompressedTensors, kF8, kGroupIsTensor, true, kTensor}},
    {"w8a8_fp8_block", {kCompressedTensors, kF8, 128, true, kGroup, 128}},
    {"w4a16_g128", {kCompressedTensors, kU4, 128, true}},
    {"w4a16_g64", {kCompressedTensors, kU4, 64, true}},
    {"w4a16_g32", {kCompressedTensors, kU4, 32, true}},
    {"w4a16_channel", {kCompressedTensors, kU4, kGroupIsChannel, true}},
    {"w4a16_g128_asym", {kCompressedTensors, kU4, 128}},
    {"w4a16_g64_asym", {kCompressedTensors, kU4, 64}},
    {"w4a16_g32_asym", {kCompressedTensors, kU4, 32}},
    {"w4a16_channel_asym", {kCompressedTensors, kU4, kGroupIsChannel}},
};

}  // namespace

std::optional<DType> CheckpointType::BlockType(int64_t k) const {
  const int64_t whole = group > 0 ? group : k;
  if (k % 32 != 0 || whole % 32 != 0 || k % whole != 0) return std::nullopt;
  const bool large = whole % 128 == 0;
  switch (codes) {
    case kNf4:
      return DType::kNF4;
    case kFp4:
      return DType::kBNB_FP4;
    case kU4:
      return large ? DType::kU4_G128 : DType::kU4_G32;
    case kI8:
      return large ? DType::kI8_G128 : DType::kI8_G32;
    default:
      return large ? DType::kF8_G128 : DType::kF8_G32;
  }
}

std::optional<CheckpointType> FindCheckpointType(std::string_view name) {
  for (const auto& row : kTypes) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

std::string CheckpointTypeNames(std::optional<CheckpointKind> kind) {
  std::string names;
  for (const auto& row : kTypes) {
    if (kind.has_value() && row.type.kind != *kind) continue;
    names += FormattedString(", %s", row.name);
  }
  return names;
}

}  // namespace inlay
