// Factors that GGUF files keep beside their weights ("NAME.scale", which
// converters write for nvfp4): what multiplies all of a matrix, or each matrix
// of a stack of experts. Knows nothing of blocks.
// Source: llama.cpp (conversion/base.py, _write_scale_tensor;
// src/llama-model.cpp).
#ifndef INLAY_CORE_FORMATS_GGUF_FACTORS_H_
#define INLAY_CORE_FORMATS_GGUF_FACTORS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "core/formats/factor_source.h"
#include "core/formats/gguf_arch.h"
#include "core/formats/gguf_files.h"

namespace inlay {

// Whether a tensor is one. What `arch` has a name for is not: Gemma 4 has
// factors of its own.
bool IsGgufFactor(const GgufArch& arch, std::string_view name);

// Those of the tensor `name`, which is one, under the published name of their
// weight. INVALID_ARGUMENT without that weight, for another type than f32, for
// another count than one a matrix, and for what is not finite; UNIMPLEMENTED
// for a weight that `arch` does not have.
absl::StatusOr<WeightFactors> ReadGgufFactor(const GgufFiles& files,
                                             const GgufArch& arch,
                                             std::string_view name);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_FACTORS_H_
