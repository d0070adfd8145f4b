// The tensor infos of a GGUF header and the checks of where their data lies.
#ifndef INLAY_CORE_FORMATS_GGUF_TENSORS_H_
#define INLAY_CORE_FORMATS_GGUF_TENSORS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/gguf.h"
#include "core/formats/gguf_cursor.h"

namespace inlay {

// Reads `count` infos at the cursor, behind which the data begins, padded to
// `alignment`. Sorted by name. Errors: as ParseGgufHeader says.
absl::StatusOr<std::vector<GgufTensor>> ParseGgufTensors(uint64_t count,
                                                         uint32_t alignment,
                                                         uint64_t file_bytes,
                                                         GgufCursor* cursor);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_TENSORS_H_
