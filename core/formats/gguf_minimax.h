// What GGUF files say of MiniMax-M3, both ways: layers with experts select
// blocks of keys, and no others do. Knows nothing of networks.
// Source: llama.cpp's converter (conversion/minimax.py) and its loader
// (src/models/minimax-m3.cpp).
#ifndef INLAY_CORE_FORMATS_GGUF_MINIMAX_H_
#define INLAY_CORE_FORMATS_GGUF_MINIMAX_H_

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// Under published keys. INVALID_ARGUMENT or UNIMPLEMENTED naming the key.
absl::Status ReadGgufMiniMaxM3(const GgufArchKeys& keys, const GgufSizes& sizes,
                               Json* config);

// UNIMPLEMENTED where config.json says what files cannot.
absl::Status SetGgufMiniMaxM3(GgufKeyWriter& keys);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_MINIMAX_H_
