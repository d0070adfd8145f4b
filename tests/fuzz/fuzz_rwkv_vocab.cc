// Any bytes as RWKV's list of tokens, by themselves and behind the single bytes
// that every list has; the tokenizer then encodes a part of the same bytes: no
// crash, ids in range, and the tokens' bytes are the text's.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/rwkv_vocab.h"
#include "core/text/tokenizer.h"
#include "core/text/utf8.h"

namespace {

void Require(bool holds) {
  if (!holds) abort();
}

std::string SingleBytes() {
  std::string list;
  for (int byte = 0; byte < 256; ++byte) {
    char line[32];
    (void)snprintf(line, sizeof(line), "%d b'\\x%02x' 1\n", byte + 1, byte);
    list += line;
  }
  return list;
}

void CheckText(const inlay::Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  if (!tokenizer.Encode(text, {}, &ids).ok()) return;
  std::string bytes;
  for (const int32_t id : ids) {
    Require(id >= 0 && id < tokenizer.vocab_size());
    bytes += tokenizer.TokenBytes(id);
  }
  Require(bytes == text);
}

void CheckList(std::string_view list, std::string_view text) {
  const auto document = inlay::RwkvVocabDocument(list);
  if (!document.ok()) return;
  const auto tokenizer = inlay::MakeTokenizerFromDocument(*document);
  if (!tokenizer.ok()) return;
  CheckText(**tokenizer, "a b\xC3\xA9 1\n");
  if (inlay::IsValidUtf8(text)) CheckText(**tokenizer, text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string first = SingleBytes();
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  CheckList(bytes, bytes.substr(0, 512));
  CheckList(first + std::string(bytes), bytes.substr(0, 512));
  return 0;
}
