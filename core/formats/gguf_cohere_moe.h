// What a GGUF file says of Cohere 2 with experts beyond Cohere 2's own keys,
// both ways. Knows nothing of networks.
// Source: llama.cpp's converter (conversion/command_r.py) and its loader
// (src/models/cohere2moe.cpp).
#ifndef INLAY_CORE_FORMATS_GGUF_COHERE_MOE_H_
#define INLAY_CORE_FORMATS_GGUF_COHERE_MOE_H_

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_files.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// Layers, norms and windows. INVALID_ARGUMENT or UNIMPLEMENTED naming the key.
absl::Status ReadGgufCohereMoe(const GgufFiles& files, const GgufArchKeys& keys,
                               const GgufSizes& sizes, Json* config);

// The experts, of a `config` that has their number and width.
absl::Status ReadGgufCohereExperts(const GgufArchKeys& keys, Json* config);

// The way back. UNIMPLEMENTED where config.json says what files cannot: dense
// layers that are not the first ones, or without rope; experts and the shared
// one added up.
absl::Status SetGgufCohereMoe(GgufKeyWriter& keys);
absl::Status SetGgufCohereExperts(GgufKeyWriter& keys);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_COHERE_MOE_H_
