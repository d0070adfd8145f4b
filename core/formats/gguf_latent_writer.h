// What a GGUF file says of latent attention and its indexers: what
// gguf_latent.h undoes.
#ifndef INLAY_CORE_FORMATS_GGUF_LATENT_WRITER_H_
#define INLAY_CORE_FORMATS_GGUF_LATENT_WRITER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/formats/gguf_config_writer.h"
#include "core/formats/gguf_key_writer.h"

namespace inlay {

// Ranks, sizes of heads and rope of a file with attn_k_b and attn_v_b; one
// cached row for all heads. UNIMPLEMENTED for biases and for rotary pairs that
// lie otherwise.
absl::Status SetGgufLatent(GgufKeyWriter& keys, int64_t positions,
                           GgufConfigTensors* tensors);

// DeepSeek-V3.2's and GLM-5's.
absl::Status SetGgufIndexer(GgufKeyWriter& keys);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_LATENT_WRITER_H_
