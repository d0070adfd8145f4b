// From a tokenizer to the token list of a GGUF file: what gguf_tokenizer.h
// undoes. Knows nothing of how a tokenizer.json is run.
#ifndef INLAY_CORE_FORMATS_GGUF_TOKENIZER_WRITER_H_
#define INLAY_CORE_FORMATS_GGUF_TOKENIZER_WRITER_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "core/formats/gguf_writer.h"
#include "core/formats/model_files.h"
#include "core/json/json.h"

namespace inlay {

// Sets the keys of tokens, types, scores, merges, special ids and the chat
// templates of `files`. Ids up to `vocab_size` that no token has are filled
// with unused ones, as readers want one for each row of the embedding.
// A tokenizer.json is put beside them (tokenizer.huggingface.json), which Inlay
// prefers: the same ids come out to the last rule that the lists cannot say.
//
//   tokenizer                               tokenizer.ggml.model
//   tokenizer.json, byte-level BPE          "gpt2"
//     BPE over SentencePiece's pieces       "llama": scores are the order in
//                                           which merges first make a piece
//     Unigram                               "t5"
//     WordPiece                             "bert"
//   tokenizer.model (a document of          "llama", "t5": pieces, scores and
//     sentencepiece_document.h), BPE and    types as stored; the lists say all,
//     Unigram                               nothing is put beside them
//
// UNIMPLEMENTED for other models, and for rules that have no name or key in
// GGUF; INVALID_ARGUMENT for a malformed document and more tokens than
// `vocab_size`.
absl::Status SetGgufTokenizer(const Json& tokenizer, const ModelFiles& files,
                              int64_t vocab_size, GgufWriter* writer);

// The keys of a file of architecture `arch` without a tokenizer: llama.cpp
// refuses a file that does not say so, and how many tokens there are (rows of
// the embedding; what is set already stays). Errors are the writer's.
absl::Status SetNoGgufTokenizer(std::string_view arch, int64_t vocab_size,
                                GgufWriter* writer);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_TOKENIZER_WRITER_H_
