// What a GGUF file says of Llama 4 beyond Llama's own keys, both ways. Knows
// nothing of networks.
// Source: llama.cpp's converter (conversion/llama4.py) and its loader
// (src/models/llama4.cpp).
#ifndef INLAY_CORE_FORMATS_GGUF_LLAMA4_H_
#define INLAY_CORE_FORMATS_GGUF_LLAMA4_H_

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// A window of 0: no chunks and rope in all layers. What the published models
// have in common has no keys; their norms of q and k llama.cpp tells by the
// number of experts.
absl::Status ReadGgufLlama4(const GgufArchKeys& keys, const GgufSizes& sizes,
                            Json* config);

// UNIMPLEMENTED where config.json says what the published ones do not: what
// these have in common has no keys.
absl::Status SetGgufLlama4(GgufKeyWriter& keys);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_LLAMA4_H_
