// What GGUF files say of DeepSeek-V4, both ways: windows beside compressed
// keys, residual streams, experts by the token's id. Knows nothing of networks.
// Source: llama.cpp's converter (conversion/deepseek.py) and its loader
// (src/models/deepseek4.cpp).
#ifndef INLAY_CORE_FORMATS_GGUF_DEEPSEEK4_H_
#define INLAY_CORE_FORMATS_GGUF_DEEPSEEK4_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// Under published keys, without rope's but for that of compressed keys.
// INVALID_ARGUMENT or UNIMPLEMENTED naming the key.
absl::Status ReadGgufDeepseek4(const GgufArchKeys& keys, const GgufSizes& sizes,
                               const GgufHeader& header, Json* config);

// All but rope's and what all families have. UNIMPLEMENTED where config.json
// says what files cannot.
absl::Status SetGgufDeepseek4(GgufKeyWriter& keys, int64_t hidden_size);

// `config` with the base of layers without compressed keys, and the scaling of
// the others, as rope's; what is rotated as a part of heads of `head_dim`.
absl::StatusOr<Json> WithDeepseek4Rope(const Json& config, int64_t head_dim);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_DEEPSEEK4_H_
