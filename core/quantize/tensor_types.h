// Which type each tensor of a quantised file gets: types for all, mixtures of
// K-quants, overrides by name, and what takes the place of a type whose blocks
// do not fit. Pure functions; knows nothing of files.
// Source: llama.cpp's rules for its file types of the same names.
#ifndef INLAY_CORE_QUANTIZE_TENSOR_TYPES_H_
#define INLAY_CORE_QUANTIZE_TENSOR_TYPES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/formats/tensor_override.h"
#include "core/quantize/checkpoint_types.h"
#include "memory/dtype.h"

namespace inlay {

enum class Mixture : uint8_t { kNone, kSmall, kMedium, kLarge };

// "q8_0", "q4_k_m", ...
struct QuantizedType {
  DType base = DType::kF32;
  Mixture mixture = Mixture::kNone;
  std::optional<uint32_t> file_type;  // general.file_type, where it has one
  // A folder in the layout of another engine's checkpoints.
  std::optional<CheckpointType> checkpoint = std::nullopt;
};

// INVALID_ARGUMENT listing the names, for others and for formats that neither
// GGUF has nor a checkpoint's layout, or that nothing encodes.
absl::StatusOr<QuantizedType> ParseQuantizedType(std::string_view name);

// One "PATTERN=TYPE".
absl::StatusOr<TensorOverride> ParseTensorOverride(std::string_view text);

// Of a folder's linear layers. No type: they stay as they are stored.
struct CheckpointOverride {
  std::string pattern;
  std::optional<CheckpointType> type;
};
// The same in a folder of `type`. compressed-tensors has settings for groups of
// layers, so that types of that layout go together; GPTQ and AWQ have one for
// all.
absl::StatusOr<CheckpointOverride> ParseCheckpointOverride(
    std::string_view text, std::string_view type_name,
    const CheckpointType& type);

// Of options, "PATTERN=TYPE" each: INVALID_ARGUMENT names a pattern that is of
// none of the tensors `names`, a misspelt one.
absl::Status CheckPatterns(absl::Span<const std::string> tensor_types,
                           absl::Span<const std::string_view> names);

// What the rules look at.
struct TensorRole {
  std::string_view published;  // "model.layers.0.mlp.down_proj.weight"
  std::string_view gguf;       // "blk.0.ffn_down.weight"
  absl::Span<const int64_t> shape;
  int num_layers = 0;
  bool is_head = false;  // gives the logits: the head, or the embedding for it
  bool is_vector = false;  // no matrix, whatever its shape
  // Of a stack, which has one type: the experts' names.
  absl::Span<const std::string> parts = {};
};

struct ChosenType {
  DType dtype = DType::kF32;
  DType wanted = DType::kF32;  // differs where its blocks do not fit the rows
};

// The last override that matches wins: the name, or those of all parts.
// INVALID_ARGUMENT for one that matches some of a stack's experts.
absl::StatusOr<ChosenType> ChooseTensorType(
    const QuantizedType& type, absl::Span<const TensorOverride> overrides,
    const TensorRole& role);

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_TENSOR_TYPES_H_
