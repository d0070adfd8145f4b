// What GGUF files say of families whose windowed layers differ from the others
// by more than the window, both ways: MiMo-V2-Flash (KV heads, sinks, rope) and
// Mellum 2 (rope). Knows nothing of networks.
// Source: llama.cpp's converter (conversion/mimo.py, mellum.py) and its loader
// (src/models/mimo2.cpp, mellum.cpp).
#ifndef INLAY_CORE_FORMATS_GGUF_WINDOWS_H_
#define INLAY_CORE_FORMATS_GGUF_WINDOWS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_files.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// A flag a layer, as numbers or bools; files have those of layers that predict
// further tokens besides. INVALID_ARGUMENT naming the key.
absl::StatusOr<std::vector<bool>> ReadGgufLayerFlags(const GgufArchKeys& keys,
                                                     std::string_view key,
                                                     int64_t layers);

// Under published keys. INVALID_ARGUMENT or UNIMPLEMENTED naming the key.
absl::Status ReadGgufMimo(const GgufFiles& files, const GgufArchKeys& keys,
                          const GgufSizes& sizes, Json* config);
absl::Status ReadGgufMellum(const GgufFiles& files, const GgufArchKeys& keys,
                            const GgufSizes& sizes, Json* config);

// MiMo's KV heads, one number a layer, and the width of values.
absl::Status SetGgufMimoHeads(GgufKeyWriter& keys);
// UNIMPLEMENTED where config.json says what files cannot.
absl::Status SetGgufMimo(GgufKeyWriter& keys);
absl::Status SetGgufMellum(GgufKeyWriter& keys);

// config.json as Mellum 2 reads it: ropes of rope_parameters alone.
Json WithMellumRopes(const Json& config);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_WINDOWS_H_
