// The header of a safetensors file, parsed and validated: a pure function over
// bytes. Knows nothing of files on disk or of models.
// Source: https://huggingface.co/docs/safetensors (8 bytes little-endian header
// length N, N bytes of JSON, then the data).
#ifndef INLAY_CORE_FORMATS_SAFETENSORS_H_
#define INLAY_CORE_FORMATS_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/formats/weight_source.h"

namespace inlay {

// The format's own cap on N.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;
inline constexpr size_t kSafetensorsPrefixBytes = 8;
inline constexpr size_t kMaxSafetensorsRank = 8;
inline constexpr size_t kMaxSafetensorsTensors = size_t{1} << 20;

struct SafetensorsTensor {
  WeightInfo info;
  uint64_t offset = 0;  // of the first byte, from the start of the file
};

// Whether a tensor of that name is wanted; null: all are.
using TensorFilter = std::function<bool(std::string_view name)>;

// Where the data begins: 8 + N. `prefix`: the first bytes of the file, all
// there are up to 8. INVALID_ARGUMENT when the file is too short for what it
// claims or N is above the cap; checked before anyone allocates N bytes.
absl::StatusOr<uint64_t> SafetensorsDataStart(
    absl::Span<const std::byte> prefix, uint64_t file_bytes);

// `bytes`: the file from its start, at least up to where the data begins.
// The tensors sorted by name. INVALID_ARGUMENT for anything the specification
// forbids (overlaps and holes included), UNIMPLEMENTED for a data type that we
// do not know, RESOURCE_EXHAUSTED above a cap. Memory taken is proportional to
// the header's bytes. Tensors that are not `wanted` are left out, and their
// data types may be any.
absl::StatusOr<std::vector<SafetensorsTensor>> ParseSafetensorsHeader(
    absl::Span<const std::byte> bytes, uint64_t file_bytes,
    const TensorFilter& wanted = nullptr);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_SAFETENSORS_H_
