// How byte-level BPE cuts text before it merges, by the names that GGUF files
// give (tokenizer.ggml.pre), as the tokenizer.json of those models say it.
#ifndef INLAY_CORE_FORMATS_GGUF_PRE_TOKENIZER_H_
#define INLAY_CORE_FORMATS_GGUF_PRE_TOKENIZER_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "core/json/json.h"

namespace inlay {

struct GgufPreTokenizer {
  Json pre_tokenizer;          // the section of a tokenizer.json
  Json normalizer;             // may be null
  bool ignore_merges = false;  // a word that is a token is that token
  bool adds_bos = false;       // where the file does not say
};

// UNIMPLEMENTED listing the names known.
absl::StatusOr<GgufPreTokenizer> FindGgufPreTokenizer(std::string_view name);

// The name that files give to what a tokenizer.json does: its sections
// "pre_tokenizer" and "normalizer" (null where there is none) and whether its
// model ignores merges. UNIMPLEMENTED where no name stands for that.
absl::StatusOr<std::string_view> NameGgufPreTokenizer(const Json& pre_tokenizer,
                                                      const Json& normalizer,
                                                      bool ignore_merges);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_PRE_TOKENIZER_H_
