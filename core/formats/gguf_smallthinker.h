// What GGUF files say of SmallThinker, both ways: which layers have windows and
// rope, and how experts are weighed. Knows nothing of networks.
// Source: llama.cpp's converter (conversion/smallthinker.py) and its loader
// (src/models/smallthinker.cpp).
#ifndef INLAY_CORE_FORMATS_GGUF_SMALLTHINKER_H_
#define INLAY_CORE_FORMATS_GGUF_SMALLTHINKER_H_

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// Under published keys. INVALID_ARGUMENT or UNIMPLEMENTED naming the key.
absl::Status ReadGgufSmallThinker(const GgufArchKeys& keys,
                                  const GgufSizes& sizes, Json* config);

// Of a config.json with usual names of sizes. UNIMPLEMENTED where it says what
// files cannot.
absl::Status SetGgufSmallThinker(GgufKeyWriter& keys);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_SMALLTHINKER_H_
