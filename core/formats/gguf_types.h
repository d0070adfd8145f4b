// The element types of GGUF tensors: ggml's numbers and names, and which of
// memory/formats.def each is. One table, by name: a format that is added there
// opens without an edit here.
// Source: ggml's docs/gguf.md and ggml.h (enum ggml_type).
#ifndef INLAY_CORE_FORMATS_GGUF_TYPES_H_
#define INLAY_CORE_FORMATS_GGUF_TYPES_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "memory/dtype.h"

namespace inlay {

// UNIMPLEMENTED naming the number, its name where ggml has one, and the types
// that open.
absl::StatusOr<DType> DTypeFromGgmlType(uint32_t type);
// Nullopt for formats that GGUF cannot hold.
std::optional<uint32_t> GgmlTypeFromDType(DType dtype);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_TYPES_H_
