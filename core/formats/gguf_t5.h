// Keys of T5's encoder (t5encoder; of files of t5 the encoder alone) in both
// directions: config.json has the names of T5Config. Sources: llama.cpp's
// converter (conversion/t5.py) and its model.
#ifndef INLAY_CORE_FORMATS_GGUF_T5_H_
#define INLAY_CORE_FORMATS_GGUF_T5_H_

#include <string_view>

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_config_writer.h"
#include "core/formats/gguf_files.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

bool IsGgufT5(std::string_view arch);

// Whether a tensor of such a file is of what decodes.
bool IsGgufT5Decoder(std::string_view arch, std::string_view tensor);

// Adds what is theirs to a `config` that has sizes under the usual names, which
// get T5's. With a table of distances in each layer the network is UMT5's.
absl::Status ReadGgufT5(const GgufFiles& files, const GgufArchKeys& keys,
                        const GgufSizes& sizes, Json* config);

// All keys but the architecture's. UNIMPLEMENTED for activations, and for a
// largest distance, that llama.cpp has not.
absl::Status SetGgufT5(GgufKeyWriter& keys, GgufConfigTensors* tensors);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_T5_H_
