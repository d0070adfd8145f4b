// Pre-tokenizers that rewrite the text on their way.
#ifndef INLAY_CORE_TEXT_PRE_TOKENIZER_REWRITE_H_
#define INLAY_CORE_TEXT_PRE_TOKENIZER_REWRITE_H_

#include <memory>
#include <string>

#include "core/text/pre_tokenizer.h"

namespace inlay {

// Which pieces get a leading replacement character.
enum class PrependScheme { kAlways, kFirst, kNever };

// Spaces become `replacement` (one character); with `split`, a piece starts at
// each of them.
std::unique_ptr<PreTokenizer> MakeMetaspace(std::string replacement,
                                            PrependScheme scheme, bool split);

// A space before each piece that has none, GPT-2's cut, and bytes spelled as
// characters (byte_alphabet.h) unless the model takes raw bytes.
std::unique_ptr<PreTokenizer> MakeByteLevel(bool add_prefix_space,
                                            bool use_regex, bool raw_bytes);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_PRE_TOKENIZER_REWRITE_H_
