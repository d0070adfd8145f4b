// What GGUF files say of GroveMoE's experts of groups and of Arctic's, both
// ways. Knows nothing of networks.
// Source: llama.cpp's converter (conversion/grovemoe.py, arctic.py) and its
// loader (src/models/grovemoe.cpp, arctic.cpp).
#ifndef INLAY_CORE_FORMATS_GGUF_GROVE_H_
#define INLAY_CORE_FORMATS_GGUF_GROVE_H_

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// Under names that no published file has: num_experts_per_group,
// parallel_expert_intermediate_size, expert_group_scale. INVALID_ARGUMENT
// naming the key.
absl::Status ReadGgufGrove(const GgufArchKeys& keys, const GgufSizes& sizes,
                           Json* config);
absl::Status SetGgufGrove(GgufKeyWriter& keys);

// UNIMPLEMENTED where config.json says what files cannot: layers without
// experts, or whose experts are not beside the rest.
absl::Status CheckGgufArctic(const GgufKeyWriter& keys);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_GROVE_H_
