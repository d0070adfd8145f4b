// Keys of encoders (bert, nomic-bert, nomic-bert-moe, jina-bert-v3,
// modern-bert, eurobert, gemma-embedding; T5's: gguf_t5.h) and of embeddings,
// in both directions. Sources: llama.cpp's converter (conversion/bert.py,
// gemma.py and base.py) and models.
#ifndef INLAY_CORE_FORMATS_GGUF_ENCODER_H_
#define INLAY_CORE_FORMATS_GGUF_ENCODER_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/formats/embedding_config.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_config_writer.h"
#include "core/formats/gguf_files.h"
#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_sizes.h"
#include "core/json/json.h"

namespace inlay {

// Those that are not written as a decoder's family.
bool IsGgufBert(std::string_view arch);

// Adds what is theirs to a `config` that has sizes under the usual names. With
// the tensors of a classifier the architecture is one with labels; without its
// last one it is the network alone. UNIMPLEMENTED for a classifier whose first
// layer is not there: converters have dropped it.
absl::Status ReadGgufBert(const GgufFiles& files, const GgufArchKeys& keys,
                          const GgufSizes& sizes, Json* config);

// How states become an embedding, of any architecture: pooling_type, Dense
// modules by their tensors. Length 1 by Inlay's own key; without it where there
// is a pooling, as llama.cpp's programs have it.
absl::StatusOr<EmbeddingDefaults> ReadGgufEmbedding(const GgufFiles& files,
                                                    const GgufArchKeys& keys);

// All keys but the architecture's. `architecture`: config.json's.
absl::Status SetGgufBert(GgufKeyWriter& keys, std::string_view architecture,
                         GgufConfigTensors* tensors);

// Of decoders' families: files of gemma-embedding are of models that see both
// ways, others of those that say so. UNIMPLEMENTED where they cannot.
absl::Status SetGgufDirection(GgufKeyWriter& keys);

// pooling_type and what belongs to it. UNIMPLEMENTED for modules, or an order
// of them, that a file cannot say.
absl::Status SetGgufEmbedding(const EmbeddingDefaults& embedding,
                              const GgufArch& arch, GgufWriter* writer);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_ENCODER_H_
