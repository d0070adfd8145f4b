// Keys of RWKV-7's files ("rwkv7"), in both directions, and what tensors they
// have otherwise than checkpoints.
// Source: llama.cpp's converter (conversion/rwkv.py) and network
// (models/rwkv7-base.cpp).
#ifndef INLAY_CORE_FORMATS_GGUF_RWKV_H_
#define INLAY_CORE_FORMATS_GGUF_RWKV_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/formats/weight_source.h"
#include "core/json/json.h"

namespace inlay {

// UNIMPLEMENTED where heads' norms would have another epsilon than llama.cpp
// gives them, whatever the file says: 64e-5.
absl::Status ReadGgufRwkv7(const GgufArchKeys& keys, const GgufSizes& sizes,
                           Json* config);

// All keys but the architecture's. UNIMPLEMENTED where config.json says what
// files do not: another epsilon of heads' norms.
absl::Status SetGgufRwkv7(GgufKeyWriter& keys);

// `stored`: as gguf_source.h presents it. "P.x_x" [6, .., n] becomes "P.x_r",
// "P.x_w", "P.x_k", "P.x_v", "P.x_a" and "P.x_g" [1, 1, n], "P.r_k" [n] a
// matrix of heads; what the first layer has in place of a mix of values is left
// out. INVALID_ARGUMENT where sizes are others.
absl::StatusOr<std::shared_ptr<const WeightSource>> PresentGgufRwkv7(
    const Json& config, std::shared_ptr<const WeightSource> stored);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_RWKV_H_
