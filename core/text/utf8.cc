// The less hot half of utf8.h.
#include "core/text/utf8.h"

#include <cstring>

namespace inlay {

void AppendRune(uint32_t code, std::string* out) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->push_back(static_cast<char>(0xC0 | code >> 6));
    out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else if (code < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | code >> 12));
    out->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | code >> 18));
    out->push_back(static_cast<char>(0x80 | (code >> 12 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
  }
}

Utf8Step StepUtf8(std::string_view text, size_t pos) {
  const auto lead = static_cast<unsigned char>(text[pos]);
  if (lead < 0x80) return {Utf8Kind::kValid, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Kind::kInvalid, 1};
  const uint32_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and what lies
  // above U+10FFFF (Unicode table 3-7).
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (uint32_t i = 1; i < length; ++i) {
    if (pos + i == text.size()) return {Utf8Kind::kCut, i};
    const auto c = static_cast<unsigned char>(text[pos + i]);
    if (c < low || c > high) return {Utf8Kind::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Kind::kValid, length};
}

namespace {

// The end of the run of ASCII bytes that starts at `pos`.
size_t SkipAscii(std::string_view text, size_t pos) {
  while (text.size() - pos >= sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, text.data() + pos, sizeof(word));
    if ((word & 0x8080808080808080u) != 0) break;
    pos += sizeof(word);
  }
  while (pos < text.size() && static_cast<unsigned char>(text[pos]) < 0x80) {
    ++pos;
  }
  return pos;
}

}  // namespace

bool IsAscii(std::string_view text) {
  return SkipAscii(text, 0) == text.size();
}

bool IsValidUtf8(std::string_view text) {
  size_t pos = SkipAscii(text, 0);
  while (pos < text.size()) {
    const Utf8Step step = StepUtf8(text, pos);
    if (step.kind != Utf8Kind::kValid) return false;
    pos = SkipAscii(text, pos + step.bytes);
  }
  return true;
}

void AppendValidUtf8(std::string_view text, std::string* out) {
  size_t begin = 0;
  size_t pos = 0;
  while (pos < text.size()) {
    const Utf8Step step = StepUtf8(text, pos);
    if (step.kind != Utf8Kind::kValid) {
      out->append(text.substr(begin, pos - begin));
      out->append(kReplacementUtf8);
      begin = pos + step.bytes;
    }
    pos += step.bytes;
  }
  out->append(text.substr(begin));
}

}  // namespace inlay
