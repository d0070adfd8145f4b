// Falcon H1's multipliers, which GGUF files hold in the weights.
// Source: llama.cpp's converter (conversion/falcon_h1.py).
#ifndef INLAY_CORE_QUANTIZE_FALCON_FACTORS_H_
#define INLAY_CORE_QUANTIZE_FALCON_FACTORS_H_

#include <string_view>

#include "absl/status/status.h"
#include "core/formats/gguf_arch.h"
#include "core/json/json.h"
#include "core/quantize/row_reader.h"

namespace inlay {

// Gives the rows of the tensor `name` their factors; of other families nothing.
// INVALID_ARGUMENT for multipliers that are no numbers and for a mixer whose
// rows are not those that `config` says.
absl::Status MultiplyFalconFactors(const Json& config, const GgufArch& arch,
                                   std::string_view name, RowLayout* rows);

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_FALCON_FACTORS_H_
