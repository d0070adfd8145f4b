// Text as Python's str sees it: code points, whitespace, case. All input is
// valid UTF-8 (checked where text enters). Unicode data: utf8proc, with
// SpecialCasing.txt for the mappings of one code point to several.
#ifndef INLAY_CORE_TEXT_TEMPLATE_UNICODE_H_
#define INLAY_CORE_TEXT_TEMPLATE_UNICODE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace inlay::tmpl {

bool IsValidUtf8(std::string_view text);
size_t CountChars(std::string_view text);
// The code point at byte `pos` of `text`; moves `pos` behind it.
char32_t NextChar(std::string_view text, size_t& pos);
// The code point that ends at byte `end`; moves `end` to its beginning.
char32_t PreviousChar(std::string_view text, size_t& end);
void AppendChar(char32_t c, std::string& out);
// The byte offset of code point `index` (at most the number of code points).
size_t ByteOffset(std::string_view text, size_t index);

bool IsSpace(char32_t c);      // str.isspace
bool IsLineBreak(char32_t c);  // what str.splitlines splits at
bool IsPrintable(char32_t c);  // what repr() leaves as it is
bool IsAlpha(char32_t c);
bool IsNumeric(char32_t c);  // what isalnum adds to IsAlpha
bool IsDigit(char32_t c);
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsTitle(char32_t c);
bool IsIdentifierStart(char32_t c);
bool IsIdentifierPart(char32_t c);

std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string ToTitle(std::string_view text);        // str.title
std::string ToCapitalized(std::string_view text);  // str.capitalize
std::string SwapCase(std::string_view text);

// str.strip: which ends to strip, and of what; no `chars` means whitespace.
enum class Ends { kBoth, kLeft, kRight };
std::string_view Strip(std::string_view text, Ends ends);
std::string_view StripChars(std::string_view text, Ends ends,
                            std::string_view chars);

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_UNICODE_H_
