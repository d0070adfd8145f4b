// Settings of integers in groups as GPTQ's, AWQ's and AutoRound's files have
// them: for all layers, and of rules for some. Owns nothing.
#ifndef INLAY_CORE_FORMATS_INTEGER_SETTINGS_H_
#define INLAY_CORE_FORMATS_INTEGER_SETTINGS_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/formats/input_major_layer.h"
#include "core/formats/quantized_settings.h"
#include "core/json/json.h"

namespace inlay {

// "bits", which must be one of `supported`, "group_size" and "sym" (zero points
// are stored either way). What is absent adds no choice. `place`: as errors
// name the settings.
absl::Status AddChoices(const Json& settings,
                        absl::Span<const int64_t> supported,
                        std::string_view place, LayerChoices& choices);

// Those of the settings for all: `bits` and groups of 128 where they are
// absent (0 bits: refused then).
absl::Status AddDefaultChoices(const Json& settings, int64_t bits,
                               absl::Span<const int64_t> supported,
                               LayerChoices& choices);

// Those of "dynamic": GPTQModel's rules by patterns of modules' names. "-:"
// leaves modules alone, which shows in the tensors; "+:" or nothing gives them
// settings of their own.
absl::Status AddDynamicChoices(const Json& config,
                               absl::Span<const int64_t> supported,
                               LayerChoices& choices);

// OK where `key` is absent, null, false or empty: it would change what a layer
// computes. Else UNIMPLEMENTED.
absl::Status CheckAbsent(const Json& settings, std::string_view key,
                         std::string_view place = kConfigSettings);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_INTEGER_SETTINGS_H_
