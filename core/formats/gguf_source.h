// A GGUF model's tensors as a WeightSource, named, shaped and valued as in the
// published checkpoint. What the converter did to rows and values is undone on
// reading; such tensors have no mapped address.
#ifndef INLAY_CORE_FORMATS_GGUF_SOURCE_H_
#define INLAY_CORE_FORMATS_GGUF_SOURCE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/formats/gguf_arch.h"
#include "core/formats/gguf_files.h"
#include "core/formats/weight_source.h"

namespace inlay {

struct GgufHeads {
  int64_t query = 0;
  int64_t key = 0;
  // Rows of each, where layers differ in their count; 0: these are of all.
  int64_t head_dim = 0;
};

// Takes the open files over. Tensors of layers from `layers` on, which predict
// further tokens, are passed over. UNIMPLEMENTED for a tensor that `arch` does
// not have, INVALID_ARGUMENT for one whose rows do not divide into heads or
// that lies in several files. Factors beside weights go into their blocks
// (factor_source.h); errors as there and in gguf_factors.h.
absl::StatusOr<std::shared_ptr<const WeightSource>> MakeGgufSource(
    GgufFiles files, const GgufArch& arch, const GgufHeads& heads,
    int64_t layers);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_SOURCE_H_
