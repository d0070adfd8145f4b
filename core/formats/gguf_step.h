// What GGUF files say of Step 3.5, both ways: heads of layers with windows and
// of others, their ropes, limits of what gates give. Knows nothing of networks.
// Source: llama.cpp's converter (conversion/step3.py) and its loader
// (src/models/step35.cpp).
#ifndef INLAY_CORE_FORMATS_GGUF_STEP_H_
#define INLAY_CORE_FORMATS_GGUF_STEP_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_files.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// Under the names of step_config.h. INVALID_ARGUMENT or UNIMPLEMENTED naming
// the key.
absl::Status ReadGgufStep(const GgufFiles& files, const GgufArchKeys& keys,
                          const GgufSizes& sizes, Json* config);
absl::Status ReadGgufStepExperts(const GgufFiles& files,
                                 const GgufArchKeys& keys,
                                 const GgufSizes& sizes, Json* config);

// Of a config.json with those names. UNIMPLEMENTED where it says what files
// cannot.
absl::Status SetGgufStepHeads(GgufKeyWriter& keys);
absl::Status SetGgufStep(GgufKeyWriter& keys);
absl::Status SetGgufStepExperts(GgufKeyWriter& keys);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_STEP_H_
