// What GGUF files say of Baichuan, both ways. llama.cpp tells 7B, which has
// rope, from 13B, which has ALiBi, by the number of layers, and has no head
// that is normalised: files have it as it is used. Knows nothing of networks.
// Source: llama.cpp's loader (src/models/baichuan.cpp).
#ifndef INLAY_CORE_FORMATS_GGUF_BAICHUAN_H_
#define INLAY_CORE_FORMATS_GGUF_BAICHUAN_H_

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// UNIMPLEMENTED for another number of layers than the two, where
// attention.max_alibi_bias, which what is written here has besides, does not
// say which.
absl::Status ReadGgufBaichuan(const GgufArchKeys& keys, const GgufSizes& sizes,
                              Json* config);
absl::Status SetGgufBaichuan(GgufKeyWriter& keys);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_BAICHUAN_H_
