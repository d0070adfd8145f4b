// From a config.json in Hugging Face's spelling to the keys of a GGUF file:
// what gguf_config.h undoes. Knows nothing of weights. Sources: ggml's
// docs/gguf.md; llama.cpp's converter for what each key says.
#ifndef INLAY_CORE_FORMATS_GGUF_CONFIG_WRITER_H_
#define INLAY_CORE_FORMATS_GGUF_CONFIG_WRITER_H_

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/gguf_arch.h"
#include "core/formats/gguf_source.h"
#include "core/formats/gguf_writer.h"
#include "core/json/json.h"

namespace inlay {

struct GgufConfigTensors {
  GgufHeads heads;
  // Float32 vectors that belong into the file beside the weights: factors of
  // rotary frequencies, as [name, values].
  std::vector<std::pair<std::string, std::vector<float>>> vectors;
};

// The published shape of a tensor of the file by its name, of several published
// ones that of the first; null: there is none.
using GgufShapeOf =
    std::function<const std::vector<int64_t>*(std::string_view name)>;

// Sets general.architecture and the architecture's own keys. INVALID_ARGUMENT
// naming the key of config.json that is missing or out of range; UNIMPLEMENTED
// for what the format cannot say (other activations, dynamic rotary scaling,
// windows of some Qwen layers, experts in some layers).
absl::StatusOr<GgufConfigTensors> SetGgufConfig(const Json& config,
                                                const GgufArch& arch,
                                                const GgufShapeOf& shape_of,
                                                GgufWriter* writer);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_CONFIG_WRITER_H_
