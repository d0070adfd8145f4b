// GenerationDefaults and ChatFormat out of a GGUF header.
#ifndef INLAY_CORE_FORMATS_GGUF_TEXT_H_
#define INLAY_CORE_FORMATS_GGUF_TEXT_H_

#include "absl/status/statusor.h"
#include "core/formats/gguf.h"
#include "core/formats/gguf_vocab.h"
#include "core/formats/model_files.h"

namespace inlay {

// The format has room for few of the ids that end an answer: control tokens
// that are known to end one count too, by their text, as llama.cpp does it.
GenerationDefaults GgufGenerationDefaults(const GgufVocab& vocab);

// tokenizer.chat_template and tokenizer.chat_template.NAME. INVALID_ARGUMENT
// for other types than text, RESOURCE_EXHAUSTED above a cap on sizes or on the
// number of templates.
absl::StatusOr<ChatFormat> ReadGgufChatFormat(const GgufHeader& header,
                                              const GgufVocab& vocab);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_TEXT_H_
