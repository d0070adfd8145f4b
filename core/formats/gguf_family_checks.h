// What a family's GGUF files cannot say, as no key is there for it. Knows
// nothing of networks.
// Source: llama.cpp's loader (src/models).
#ifndef INLAY_CORE_FORMATS_GGUF_FAMILY_CHECKS_H_
#define INLAY_CORE_FORMATS_GGUF_FAMILY_CHECKS_H_

#include "absl/status/status.h"
#include "core/formats/gguf_key_writer.h"

namespace inlay {

// UNIMPLEMENTED naming the key of config.json.
absl::Status CheckGgufSarvam(const GgufKeyWriter& keys);
absl::Status CheckGgufBailing(const GgufKeyWriter& keys);
absl::Status CheckGgufPlm(const GgufKeyWriter& keys);
absl::Status CheckGgufQwen(const GgufKeyWriter& keys);
absl::Status CheckGgufMiniCpm3(const GgufKeyWriter& keys);
absl::Status CheckGgufSmolLm3(const GgufKeyWriter& keys);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_FAMILY_CHECKS_H_
