// Rotary embeddings: keys and tensors of factors as config.json has them.
#ifndef INLAY_CORE_FORMATS_GGUF_ROTARY_H_
#define INLAY_CORE_FORMATS_GGUF_ROTARY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_files.h"
#include "core/json/json.h"

namespace inlay {

// Sets rope_theta, partial_rotary_factor and rope_scaling. UNIMPLEMENTED for
// unknown scalings. Factors for each frequency (Llama 3) are spelled as
// "longrope" with equal lists, which computes the same.
absl::Status ReadGgufRotary(const GgufFiles& files, const GgufArchKeys& keys,
                            int64_t head_dim, Json* config);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_ROTARY_H_
