// What GGUF files say of Llama-Nemotron and DeciLM, both ways: heads and widths
// of each layer, 0 where a layer lacks the part. Knows nothing of networks.
// Source: llama.cpp's converter (conversion/deci.py) and its loader
// (src/models/deci.cpp).
#ifndef INLAY_CORE_FORMATS_GGUF_DECI_H_
#define INLAY_CORE_FORMATS_GGUF_DECI_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_files.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/formats/gguf_source.h"
#include "core/json/json.h"

namespace inlay {

// Heads and the MLP's width are those of the layers that have the most.
absl::Status ReadGgufDeciSizes(const GgufArchKeys& keys, GgufSizes* sizes);

// Under published keys: block_configs, or without a layer that lacks a part
// num_key_value_heads_per_layer. INVALID_ARGUMENT or UNIMPLEMENTED naming the
// key.
absl::Status ReadGgufDeci(const GgufFiles& files, const GgufArchKeys& keys,
                          const GgufSizes& sizes, Json* config);

// Heads and widths of layers. UNIMPLEMENTED where config.json says what files
// cannot.
absl::StatusOr<GgufHeads> SetGgufDeciLayers(GgufKeyWriter& keys);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_DECI_H_
