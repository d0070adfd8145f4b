// The byte-level alphabet of GPT-2 (Radford et al. 2019, encoder.py): every
// byte as one printable character, so that a vocabulary of strings can spell
// any bytes. Printable Latin-1 stands for itself, the rest for U+0100 upwards.
#ifndef INLAY_CORE_TEXT_BYTE_ALPHABET_H_
#define INLAY_CORE_TEXT_BYTE_ALPHABET_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace inlay {

// The character that stands for `byte`; below U+0144.
uint32_t ByteToAlphabet(uint8_t byte);

// Appends each byte of `bytes` as its character.
void AppendByteAlphabet(std::string_view bytes, std::string* out);

// Appends the bytes that `text` (valid UTF-8) spells; false, with nothing
// appended, when a character stands for no byte.
bool AppendAlphabetBytes(std::string_view text, std::string* out);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_BYTE_ALPHABET_H_
