// Types of checkpoints: what `--type` calls the folders that other engines
// read, as plain data.
#ifndef INLAY_CORE_QUANTIZE_CHECKPOINT_TYPES_H_
#define INLAY_CORE_QUANTIZE_CHECKPOINT_TYPES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/formats/quantized_settings.h"
#include "memory/dtype.h"

namespace inlay {

enum class CheckpointKind : uint8_t {
  kGptq,
  kAwq,
  kCompressedTensors,
  kBitsAndBytes
};
enum class CheckpointCodes : uint8_t { kU4, kI8, kF8, kNf4, kFp4 };
// What engines are told to do with inputs of layers.
enum class CheckpointInputs : uint8_t {
  kKept,
  kToken,   // 8 bits, a scale a token, found as it runs
  kGroup,   // 8 bits, a scale for each group of a token's, likewise
  kTensor,  // 8 bits, one scale, found by calibration
};

// How many elements of a weight share a scale.
inline constexpr int kGroupIsChannel = 0;
inline constexpr int kGroupIsTensor = -1;

struct CheckpointType {
  CheckpointKind kind = CheckpointKind::kGptq;
  CheckpointCodes codes = CheckpointCodes::kU4;
  int group = kGroupIsChannel;  // or a multiple of 32
  bool symmetric = false;
  CheckpointInputs inputs = CheckpointInputs::kKept;
  int rows = 1;  // that share their groups' scales; the last may be fewer

  // The blocks of ours that hold rows of k elements: none where k is no whole
  // groups of them.
  std::optional<DType> BlockType(int64_t k) const;
  // What shares a scale in a layer [n, k].
  ScaleGrid Cell(int64_t n, int64_t k) const {
    if (group == kGroupIsTensor) return {n, k};
    return {rows, group == kGroupIsChannel ? k : group};
  }

  friend bool operator==(const CheckpointType&,
                         const CheckpointType&) = default;
};

// "u4_g128", "awq_g64", "w8a8_int8", ...: none for other names.
std::optional<CheckpointType> FindCheckpointType(std::string_view name);
// All of them, or those of one layout; a comma and a space before each.
std::string CheckpointTypeNames(
    std::optional<CheckpointKind> kind = std::nullopt);

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_CHECKPOINT_TYPES_H_
