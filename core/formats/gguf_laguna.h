// What GGUF files say of Laguna (Poolside), both ways: heads of each layer,
// gates, windows with a rope of their own, experts. Knows nothing of networks.
// Source: llama.cpp's converter (conversion/laguna.py) and its loader
// (src/models/laguna.cpp).
#ifndef INLAY_CORE_FORMATS_GGUF_LAGUNA_H_
#define INLAY_CORE_FORMATS_GGUF_LAGUNA_H_

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_files.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// Under published keys. INVALID_ARGUMENT or UNIMPLEMENTED naming the key.
absl::Status ReadGgufLaguna(const GgufFiles& files, const GgufArchKeys& keys,
                            const GgufSizes& sizes, Json* config);
absl::Status ReadGgufLagunaExperts(const GgufArchKeys& keys,
                                   const GgufSizes& sizes, Json* config);

// One number a layer.
absl::Status SetGgufLagunaHeads(GgufKeyWriter& keys);
// UNIMPLEMENTED where config.json says what files cannot.
absl::Status SetGgufLaguna(GgufKeyWriter& keys, int64_t head_dim);
absl::Status SetGgufLagunaExperts(GgufKeyWriter& keys);

// config.json as Laguna reads it: ropes of rope_parameters alone, or its own.
Json WithLagunaRopes(const Json& config);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_LAGUNA_H_
