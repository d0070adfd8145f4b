// From the keys of a GGUF header to a config.json in Hugging Face's spelling,
// which is all that architectures know. Knows nothing of their networks.
// Sources: ggml's docs/gguf.md; llama.cpp's converter for what each key says.
#ifndef INLAY_CORE_FORMATS_GGUF_CONFIG_H_
#define INLAY_CORE_FORMATS_GGUF_CONFIG_H_

#include "absl/status/statusor.h"
#include "core/formats/gguf_arch.h"
#include "core/formats/gguf_files.h"
#include "core/formats/gguf_source.h"
#include "core/json/json.h"

namespace inlay {

struct GgufConfig {
  Json json;
  GgufHeads heads;
  int64_t layers = 0;  // without those that predict further tokens
};

// INVALID_ARGUMENT naming the key for what is missing, of another type or out
// of range; UNIMPLEMENTED for values that change from layer to layer, unknown
// rope scalings and experts in some architectures.
//
// Where one architecture stands for several families the keys tell them: llama
// with a window is Mistral, with experts Mixtral; olmo2 with a window is OLMo
// 3; deepseek2 with sigmoid scores is DeepSeek-V3.
//
// What the format does not hold is decided as llama.cpp decides it: the scale
// of Gemma 2 and 3's attention from the number of layers, Gemma 3's pattern of
// windows (6), Mistral's window (none, but for files that have the key), Llama
// 4's chunks, temperature and layers without rope (as published), groups of
// experts (none, but for files that have the keys). Rotary factors for each
// frequency (Llama 3) are spelled as "longrope" with equal lists, which
// computes the same.
absl::StatusOr<GgufConfig> ReadGgufConfig(const GgufFiles& files,
                                          const GgufArch& arch);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_CONFIG_H_
