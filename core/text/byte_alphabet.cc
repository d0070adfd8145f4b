// The alphabet as two constant tables.
#include "core/text/byte_alphabet.h"

#include <array>

#include "core/text/utf8.h"

namespace inlay {
namespace {

constexpr int kNumRunes = 0x144;

constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

constexpr std::array<uint16_t, 256> MakeForward() {
  std::array<uint16_t, 256> table{};
  uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    table[byte] = StandsForItself(byte) ? static_cast<uint16_t>(byte) : next++;
  }
  return table;
}

constexpr std::array<uint16_t, 256> kForward = MakeForward();

// -1 where a character stands for no byte.
constexpr std::array<int16_t, kNumRunes> MakeBackward() {
  std::array<int16_t, kNumRunes> table{};
  for (auto& entry : table) entry = -1;
  for (int byte = 0; byte < 256; ++byte) {
    table[kForward[byte]] = static_cast<int16_t>(byte);
  }
  return table;
}

constexpr std::array<int16_t, kNumRunes> kBackward = MakeBackward();

}  // namespace

uint32_t ByteToAlphabet(uint8_t byte) { return kForward[byte]; }

void AppendByteAlphabet(std::string_view bytes, std::string* out) {
  for (const char c : bytes) {
    AppendRune(kForward[static_cast<uint8_t>(c)], out);
  }
}

bool AppendAlphabetBytes(std::string_view text, std::string* out) {
  const size_t size_before = out->size();
  for (size_t pos = 0; pos < text.size();) {
    const Rune rune = RuneAt(text, pos);
    if (rune.code >= kNumRunes || kBackward[rune.code] < 0) {
      out->resize(size_before);
      return false;
    }
    out->push_back(static_cast<char>(kBackward[rune.code]));
    pos += rune.bytes;
  }
  return true;
}

}  // namespace inlay
