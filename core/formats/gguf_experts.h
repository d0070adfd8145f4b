// What only mixtures of experts have keys for, as config.json has it.
#ifndef INLAY_CORE_FORMATS_GGUF_EXPERTS_H_
#define INLAY_CORE_FORMATS_GGUF_EXPERTS_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_files.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// What files of an architecture with experts stand for.
struct GgufExpertsRow {
  std::string_view arch;
  const char* width;  // config.json's name for the experts' width
  bool normalised;    // their weights, where no key says it
};

// UNIMPLEMENTED listing those known.
absl::StatusOr<GgufExpertsRow> FindGgufExperts(std::string_view arch);

// How many experts there are, how many a token goes to, their width; whether
// weights are normalised as llama.cpp has it. "llama" with experts is Mixtral.
// UNIMPLEMENTED for experts in other architectures.
absl::Status ReadGgufExperts(const GgufFiles& files, const GgufArchKeys& keys,
                             const GgufSizes& sizes, Json* config);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_EXPERTS_H_
