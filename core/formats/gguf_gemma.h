// What only Gemma 2, 3 and 4 have keys for, as config.json has it.
#ifndef INLAY_CORE_FORMATS_GGUF_GEMMA_H_
#define INLAY_CORE_FORMATS_GGUF_GEMMA_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_files.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// The scale of attention, soft caps, the base of layers with a window and which
// layers have one. INVALID_ARGUMENT naming the key that is wrong.
absl::Status ReadGgufGemma(const GgufArchKeys& keys, const GgufSizes& sizes,
                           std::optional<int64_t> window, Json* config);

// Gemma 4: heads layer by layer, the layers without keys and values of their
// own, inputs per layer, both ropes (the full layers' by rope_freqs.weight).
// Whether values are made of keys the tensors say. UNIMPLEMENTED for widths and
// frequencies that config.json cannot say.
absl::Status ReadGgufGemma4(const GgufFiles& files, const GgufArchKeys& keys,
                            const GgufSizes& sizes, Json* config);

// Which layers slide: attention.sliding_window_pattern, for other families too.
// `all_full`: what a file without it means.
absl::Status ReadGgufPattern(const GgufArchKeys& keys, int64_t layers,
                             bool all_full, Json* config);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_GEMMA_H_
