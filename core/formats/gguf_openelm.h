// What GGUF files say of OpenELM, both ways: heads and widths of each layer.
// Knows nothing of networks.
// Source: llama.cpp's converter (conversion/openelm.py) and its loader
// (src/models/openelm.cpp).
#ifndef INLAY_CORE_FORMATS_GGUF_OPENELM_H_
#define INLAY_CORE_FORMATS_GGUF_OPENELM_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_files.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/formats/gguf_source.h"
#include "core/json/json.h"

namespace inlay {

// Heads and the MLP's width are those of the layers that have the most.
absl::Status ReadGgufOpenElmSizes(const GgufArchKeys& keys, GgufSizes* sizes);

// Under published keys. INVALID_ARGUMENT naming the key.
absl::Status ReadGgufOpenElm(const GgufFiles& files, const GgufArchKeys& keys,
                             const GgufSizes& sizes, Json* config);

// Heads and widths of layers, of a config.json with usual names of sizes, too.
// UNIMPLEMENTED where it says what files cannot.
absl::StatusOr<GgufHeads> SetGgufOpenElmLayers(GgufKeyWriter& keys);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_OPENELM_H_
