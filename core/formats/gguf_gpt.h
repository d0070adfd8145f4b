// Keys of the plain decoders that came before Llama's names: falcon, bloom, mpt
// and starcoder (gpt_bigcode), and of dbrx, in both directions.
// Source: llama.cpp's converter (conversion/*.py).
#ifndef INLAY_CORE_FORMATS_GGUF_GPT_H_
#define INLAY_CORE_FORMATS_GGUF_GPT_H_

#include <string_view>

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_config_writer.h"
#include "core/formats/gguf_files.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

bool IsGgufGpt(std::string_view arch);

// Adds what is theirs to a `config` that has sizes under the usual names.
// Falcon's files do not say which of its three layouts they had: all are read
// as heads in groups, of one norm or two.
absl::Status ReadGgufGpt(const GgufFiles& files, const GgufArchKeys& keys,
                         const GgufSizes& sizes, Json* config);

// All keys but the architecture's.
absl::Status SetGgufGpt(GgufKeyWriter& keys, GgufConfigTensors* tensors);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_GPT_H_
