// The numbers of Apertus's activation, which checkpoints have as tensors of
// each layer and GGUF files as keys: in config.json, under "xielu" (no
// published key), lists alpha_p, alpha_n, beta and eps with a number a layer,
// as stored.
// Source: llama.cpp's converter (conversion/apertus.py).
#ifndef INLAY_CORE_FORMATS_GGUF_XIELU_H_
#define INLAY_CORE_FORMATS_GGUF_XIELU_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/formats/gguf.h"
#include "core/formats/gguf_writer.h"
#include "core/formats/model_files.h"
#include "core/json/json.h"

namespace inlay {

// Sets "xielu" by the file's keys: a list with a number a layer each, or one
// for all. INVALID_ARGUMENT naming the key that is missing or of another
// length.
absl::Status ReadGgufXielu(const GgufHeader& header, int64_t layers,
                           Json* config);

// The config.json of `files`, with "xielu" by the tensors where the family has
// them and it is not there yet. NOT_FOUND and INVALID_ARGUMENT naming the
// tensor.
absl::StatusOr<Json> WithXielu(const ModelFiles& files);

// Writes the keys by "xielu", which must be there. INVALID_ARGUMENT otherwise.
absl::Status SetGgufXielu(const Json& config, GgufWriter* writer);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_XIELU_H_
