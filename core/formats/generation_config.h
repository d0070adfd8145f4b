// GenerationDefaults out of generation_config.json and config.json. A pure
// function over parsed documents.
#ifndef INLAY_CORE_FORMATS_GENERATION_CONFIG_H_
#define INLAY_CORE_FORMATS_GENERATION_CONFIG_H_

#include "absl/status/statusor.h"
#include "core/formats/model_files.h"
#include "core/json/json.h"

namespace inlay {

// `generation`: generation_config.json, `config`: config.json; either may be
// null (absent). The token ids fall back to config.json and to its
// "text_config" (multimodal models), one by one. INVALID_ARGUMENT naming file
// and key for a value of the wrong type or out of range.
absl::StatusOr<GenerationDefaults> InterpretGenerationDefaults(
    const Json& generation, const Json& config);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GENERATION_CONFIG_H_
