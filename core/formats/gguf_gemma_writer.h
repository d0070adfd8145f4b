// What a GGUF file says of Gemma 4: what gguf_gemma.h undoes.
#ifndef INLAY_CORE_FORMATS_GGUF_GEMMA_WRITER_H_
#define INLAY_CORE_FORMATS_GGUF_GEMMA_WRITER_H_

#include "absl/status/status.h"
#include "core/formats/gguf_config_writer.h"
#include "core/formats/gguf_key_writer.h"

namespace inlay {

// Heads layer by layer, layers that share keys and values, inputs per layer,
// both ropes and experts. UNIMPLEMENTED for ropes that files cannot say.
absl::Status SetGgufGemma4(GgufKeyWriter& keys, GgufConfigTensors* tensors);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_GEMMA_WRITER_H_
