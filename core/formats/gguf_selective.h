// Keys of the families with Mamba 1 mixers, in both directions: "mamba", which
// Falcon Mamba's files say, too, and "jamba".
// Source: llama.cpp's converter (conversion/mamba.py, jamba.py).
#ifndef INLAY_CORE_FORMATS_GGUF_SELECTIVE_H_
#define INLAY_CORE_FORMATS_GGUF_SELECTIVE_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_files.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// Mamba, which has nothing but mixers; with norms of dt, B and C it is Falcon
// Mamba, whose epsilon of these is not in files: it is what all published ones
// have.
absl::Status ReadGgufMamba(const GgufFiles& files, const GgufArchKeys& keys,
                           const GgufSizes& sizes, Json* config);

// The mixers' sizes, which layers attend, and by their tensors which have
// experts. UNIMPLEMENTED where those are not one in so many.
absl::Status ReadGgufJamba(const GgufFiles& files, const GgufArchKeys& keys,
                           const GgufSizes& sizes, Json* config);

// All keys but the architecture's.
absl::Status SetGgufMamba(GgufKeyWriter& keys);

// ssm.* of Jamba, and which layers attend.
absl::Status SetGgufJamba(GgufKeyWriter& keys);
absl::StatusOr<std::vector<bool>> JambaAttendingLayers(
    const GgufKeyWriter& keys);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_SELECTIVE_H_
