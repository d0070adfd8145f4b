// What a GGUF file says of Gemma 3n beyond Gemma's own keys, both ways. Knows
// nothing of networks.
// Source: llama.cpp's converter (conversion/gemma.py) and its loader
// (src/models/gemma3n.cpp).
#ifndef INLAY_CORE_FORMATS_GGUF_GEMMA3N_H_
#define INLAY_CORE_FORMATS_GGUF_GEMMA3N_H_

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_files.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// Sparsities are stored as the standard deviations from the mean that leave so
// much below, -infinity of none. INVALID_ARGUMENT or UNIMPLEMENTED naming the
// key.
absl::Status ReadGgufGemma3n(const GgufFiles& files, const GgufArchKeys& keys,
                             const GgufSizes& sizes, Json* config);

// UNIMPLEMENTED where config.json says what files cannot.
absl::Status SetGgufGemma3n(GgufKeyWriter& keys);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_GEMMA3N_H_
