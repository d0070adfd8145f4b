// What GGUF files say of Muse Glimmer, both ways: windows with rope, full
// layers without, norms of q and k whose weights are the scale of queries.
// Knows nothing of networks. Source: llama.cpp's converter
// (conversion/muse_glimmer.py) and its loader (src/models/muse-glimmer.cpp).
#ifndef INLAY_CORE_FORMATS_GGUF_MUSE_H_
#define INLAY_CORE_FORMATS_GGUF_MUSE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_config_writer.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// Under published keys, and `qk_norm_weights`, which is none: q and k have
// norms with weights. INVALID_ARGUMENT or UNIMPLEMENTED naming the key.
absl::Status ReadGgufMuse(const GgufArchKeys& keys, const GgufSizes& sizes,
                          Json* config);

// UNIMPLEMENTED where config.json says what files cannot.
absl::Status SetGgufMuse(GgufKeyWriter& keys, int64_t head_dim,
                         GgufConfigTensors* tensors);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_MUSE_H_
