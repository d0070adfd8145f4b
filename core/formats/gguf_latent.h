// The keys of latent attention (MLA) as DeepSeek's config.json has them.
#ifndef INLAY_CORE_FORMATS_GGUF_LATENT_H_
#define INLAY_CORE_FORMATS_GGUF_LATENT_H_

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_files.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// Ranks, the sizes of heads and YaRN's mscale; and takes files that score
// experts by sigmoid (a key says so, or a correction is there) for
// DeepSeek-V3's. The sizes are those of attention.key_length_mla and
// attention.value_length_mla or, in old files without them, of
// attention.key_length and attention.value_length. INVALID_ARGUMENT naming the
// key that is missing or out of range.
absl::Status ReadGgufLatent(const GgufFiles& files, const GgufArchKeys& keys,
                            const GgufSizes& sizes, Json* config);

// Sizes of the indexers that select keys, and for "glm-dsa" which layers have
// one: where the file does not say, those that llama.cpp assumes by the length.
absl::Status ReadGgufIndexer(const GgufArchKeys& keys, const GgufSizes& sizes,
                             Json* config);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_LATENT_H_
