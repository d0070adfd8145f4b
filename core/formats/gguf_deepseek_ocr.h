// What GGUF files say of DeepSeek-OCR's text, both ways: DeepSeek-V2's experts
// behind plain attention. Knows nothing of networks.
// Source: llama.cpp's converter (conversion/deepseek.py) and its loader
// (src/models/deepseek2ocr.cpp).
#ifndef INLAY_CORE_FORMATS_GGUF_DEEPSEEK_OCR_H_
#define INLAY_CORE_FORMATS_GGUF_DEEPSEEK_OCR_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_source.h"
#include "core/json/json.h"

namespace inlay {

// Under published keys. `window`: attention.sliding_window, which such files
// have not. UNIMPLEMENTED naming the key.
absl::Status ReadGgufDeepseekOcr(const GgufArchKeys& keys,
                                 std::optional<int64_t> window, Json* config);

// UNIMPLEMENTED where config.json says what files cannot.
absl::Status CheckGgufDeepseekOcr(const GgufKeyWriter& keys,
                                  const GgufHeads& heads);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_DEEPSEEK_OCR_H_
