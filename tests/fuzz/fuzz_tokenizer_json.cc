// A hostile tokenizer.json: the input is the file, a NUL byte, and a text to
// encode with whatever loads. Without a NUL the text is the file itself.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "core/text/streaming_decoder.h"
#include "core/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  const std::string_view json = input.substr(0, cut);
  const std::string_view text =
      cut == std::string_view::npos ? json : input.substr(cut + 1);
  const auto tokenizer = inlay::MakeTokenizerFromJson(json);
  if (!tokenizer.ok()) return 0;
  std::vector<int32_t> ids;
  std::vector<int32_t> types;
  if (!(*tokenizer)->EncodePair(text, json, {}, &ids, &types).ok()) return 0;
  if (types.size() != ids.size()) std::abort();
  ids.push_back(-1);
  for (int32_t id = 0; id < 64; ++id) ids.push_back(id);
  inlay::StreamingDecoder decoder(**tokenizer, {});
  std::string streamed;
  for (const int32_t id : ids) {
    streamed += decoder.Push(id);
    (void)(*tokenizer)->TokenBytes(id);
  }
  streamed += decoder.Finish();
  if (streamed != (*tokenizer)->Decode(ids, {})) std::abort();
  return 0;
}
