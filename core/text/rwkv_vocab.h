// RWKV's World tokenizer where a folder has its list of tokens alone
// (rwkv_vocab_v20230424.txt), as tokenizer.json: the longest token at each
// place of a text's bytes. Knows nothing of files. Sources: BlinkDL/RWKV-LM,
// RWKV-v7/rwkv_v7_demo.py (RWKV_TOKENIZER), and fla-hub's folders, whose class
// calls token 0, which no list has, <|rwkv_tokenizer_end_of_text|>.
#ifndef INLAY_CORE_TEXT_RWKV_VOCAB_H_
#define INLAY_CORE_TEXT_RWKV_VOCAB_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/json/json.h"

namespace inlay {

inline constexpr std::string_view kRwkvVocabFile = "rwkv_vocab_v20230424.txt";
// Of a list: a token of it takes some 200 bytes. The published one has 1.1 MB
// and 65,529 tokens.
inline constexpr uint64_t kMaxRwkvVocabBytes = uint64_t{8} << 20;
inline constexpr int32_t kMaxRwkvId = (1 << 18) - 1;

// `list`: lines of an id, a token and how many bytes it has; a token is a
// string or bytes as Python's repr() writes them. INVALID_ARGUMENT naming the
// line for one of another form, ids or tokens that are there twice, and where
// one of 256 single bytes is no token, which a text may have;
// RESOURCE_EXHAUSTED for a list that is too long.
absl::StatusOr<Json> RwkvVocabDocument(std::string_view list);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_RWKV_VOCAB_H_
