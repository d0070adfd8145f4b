// What GGUF files say of Granites, both ways: multipliers, and of Granite SWA
// windows, layers without rope and experts. Knows nothing of networks.
// Source: llama.cpp's converter (conversion/granite.py) and its loaders
// (src/models/granite.cpp, granite-swa.cpp).
#ifndef INLAY_CORE_FORMATS_GGUF_GRANITE_H_
#define INLAY_CORE_FORMATS_GGUF_GRANITE_H_

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// Multipliers under published keys. attention.scale of 0, or no such key: as
// usual.
absl::Status ReadGgufGranite(const GgufArchKeys& keys, const GgufSizes& sizes,
                             Json* config);

// What Granite SWA has besides. INVALID_ARGUMENT naming the key.
absl::Status ReadGgufGraniteSwa(const GgufArchKeys& keys,
                                const GgufSizes& sizes, Json* config);

// All of it. UNIMPLEMENTED where config.json says what files cannot.
absl::Status SetGgufGranite(GgufKeyWriter& keys);

// `config` with the base of layer_rope_theta, the first that is not 0, as that
// of all layers.
Json WithGraniteBase(const Json& config);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_GRANITE_H_
