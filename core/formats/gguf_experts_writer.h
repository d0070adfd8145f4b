// What a GGUF file says of mixtures of experts: what gguf_experts.h undoes.
#ifndef INLAY_CORE_FORMATS_GGUF_EXPERTS_WRITER_H_
#define INLAY_CORE_FORMATS_GGUF_EXPERTS_WRITER_H_

#include "absl/status/status.h"
#include "core/formats/gguf_key_writer.h"
#include "core/json/json.h"

namespace inlay {

// Whether config.json tells of experts.
bool HasGgufExperts(const Json& config);

// Sets expert_*, where config.json tells of experts. INVALID_ARGUMENT naming
// the key that is missing, UNIMPLEMENTED for layers with and without experts
// other than the family's, and weights normalised otherwise.
absl::Status SetGgufExperts(GgufKeyWriter& keys);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_EXPERTS_WRITER_H_
