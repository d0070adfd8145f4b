// Any bytes as a tokenizer.model, which then encodes a part of the same bytes:
// no crash, ids in range, and streams of whole code points.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/sentencepiece_model.h"
#include "core/text/utf8.h"

namespace {

void Require(bool holds) {
  if (!holds) abort();
}

void CheckDecode(const inlay::Tokenizer& tokenizer,
                 const std::vector<int32_t>& ids, bool skip_special) {
  inlay::DecodeOptions options;
  options.skip_special = skip_special;
  const auto stream = tokenizer.StartDecode(options);
  std::string text;
  for (const int32_t id : ids) stream->Push(id, &text);
  stream->Finish(&text);
  Require(inlay::IsValidUtf8(text));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = inlay::MakeSentencePieceTokenizer(bytes);
  if (!tokenizer.ok()) return 0;
  const int32_t vocab_size = (*tokenizer)->vocab_size();
  std::string text = "a bc  \xE2\x96\x81\xC3\xA9\xF0\x9F\x98\x80 ";
  text += bytes.substr(0, 512);
  std::vector<int32_t> ids;
  Require((*tokenizer)->Encode(text, {}, &ids).ok());
  for (const int32_t id : ids) Require(id >= 0 && id < vocab_size);
  CheckDecode(**tokenizer, ids, false);

  ids.clear();
  for (int32_t id = -1; id <= vocab_size; ++id) {
    ids.push_back(id);
    const auto token = (*tokenizer)->IdToToken(id);
    Require(token.empty() || (*tokenizer)->TokenToId(token).has_value());
    (*tokenizer)->TokenBytes(id);
  }
  CheckDecode(**tokenizer, ids, false);
  CheckDecode(**tokenizer, ids, true);
  return 0;
}
