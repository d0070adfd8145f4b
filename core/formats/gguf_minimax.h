// What GGUF files say of MiniMax-01 and M3, both ways: of the first which
// layers have lightning attention, and one factor of all that parts read; of
// M3's layers those with experts select blocks of keys, and no others do. Knows
// nothing of networks.
// Source: llama.cpp's converter (conversion/minimax.py) and its loaders
// (src/models/minimax-01.cpp, minimax-m3.cpp).
#ifndef INLAY_CORE_FORMATS_GGUF_MINIMAX_H_
#define INLAY_CORE_FORMATS_GGUF_MINIMAX_H_

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// Under transformers' keys. INVALID_ARGUMENT naming the key.
absl::Status ReadGgufMiniMax01(const GgufArchKeys& keys, const GgufSizes& sizes,
                               Json* config);

// Under transformers' keys. INVALID_ARGUMENT or UNIMPLEMENTED naming the key.
absl::Status ReadGgufMiniMaxM3(const GgufArchKeys& keys, const GgufSizes& sizes,
                               Json* config);

// UNIMPLEMENTED where config.json says what files cannot.
absl::Status SetGgufMiniMax01(GgufKeyWriter& keys);
absl::Status SetGgufMiniMaxM3(GgufKeyWriter& keys);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_MINIMAX_H_
