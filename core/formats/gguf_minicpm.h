// What GGUF files say of MiniCPM's factors, both ways: they have what parts add
// and logits are multiplied by, config.json what these are made of. Knows
// nothing of networks.
// Source: llama.cpp's converter (conversion/minicpm.py) and its loader
// (src/models/minicpm.cpp).
#ifndef INLAY_CORE_FORMATS_GGUF_MINICPM_H_
#define INLAY_CORE_FORMATS_GGUF_MINICPM_H_

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// Under published keys; files that do not say have the first models' factors.
absl::Status ReadGgufMiniCpm(const GgufArchKeys& keys, const GgufSizes& sizes,
                             Json* config);

// UNIMPLEMENTED where config.json says what files cannot.
absl::Status SetGgufMiniCpm(GgufKeyWriter& keys);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_MINICPM_H_
