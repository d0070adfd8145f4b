// One function a pattern: the end of the match that starts at `pos`, or
// kNoMatch, its alternatives in the regex's order. Sources: the patterns
// themselves (GPT-2 encoder.py, tiktoken, the models' tokenizer.json).
#include "core/text/split_patterns.h"

#include "core/text/split_scan.h"

namespace inlay {
namespace {

using split_scan::Contraction;
using split_scan::kNoMatch;
using split_scan::Peek;
using split_scan::Peeked;
using split_scan::SkipNumbers;
using split_scan::SkipRun;
using split_scan::SkipRunNot;
using split_scan::Spaces;

constexpr uint16_t kSpaceLetterNumber = kSpace | kLetter | kNumber;

struct PatternText {
  SplitPattern pattern;
  std::string_view regex;
};
constexpr PatternText kPatterns[] = {
    {SplitPattern::kGpt2,
     R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {SplitPattern::kLlama3,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::kQwen2,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::kO200k,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::kDeepSeekNumbers, R"(\p{N}{1,3})"},
    {SplitPattern::kDeepSeekCjk, "[一-龥぀-ゟ゠-ヿ]+"},
    {SplitPattern::kDeepSeekWords,
     R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

bool IsAsciiLetter(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

size_t Gpt2(std::string_view text, size_t pos) {
  const size_t contraction = Contraction(text, pos, /*any_case=*/false);
  if (contraction != kNoMatch) return contraction;
  size_t start = text[pos] == ' ' ? pos + 1 : pos;
  const Peeked at = Peek(text, start);
  if (at.Is(kLetter)) return SkipRun(text, start + at.bytes, kLetter);
  if (at.Is(kNumber)) return SkipRun(text, start + at.bytes, kNumber);
  if (at.IsNone(kSpace)) {
    return SkipRunNot(text, start + at.bytes, kSpaceLetterNumber);
  }
  return Spaces(text, pos, /*newlines=*/false);
}

// What the patterns after GPT-2's share: ` ?[^\s\p{L}\p{N}]+[\r\n]*` (and `/`
// in the tail for o200k), then the spaces.
template <bool kSlash>
size_t SymbolsOrSpaces(std::string_view text, size_t pos) {
  const size_t start = text[pos] == ' ' ? pos + 1 : pos;
  const Peeked at = Peek(text, start);
  if (!at.IsNone(kSpaceLetterNumber)) {
    return Spaces(text, pos, /*newlines=*/true);
  }
  size_t end = SkipRunNot(text, start + at.bytes, kSpaceLetterNumber);
  while (end < text.size() && (text[end] == '\r' || text[end] == '\n' ||
                               (kSlash && text[end] == '/'))) {
    ++end;
  }
  return end;
}

template <int kMaxNumbers>
size_t Llama3(std::string_view text, size_t pos) {
  const size_t contraction = Contraction(text, pos, /*any_case=*/true);
  if (contraction != kNoMatch) return contraction;
  const Peeked at = Peek(text, pos);
  if (at.Is(kLetter)) return SkipRun(text, pos + at.bytes, kLetter);
  if (at.Is(kNumber)) return SkipNumbers(text, pos, kMaxNumbers);
  if (!at.Is(kNewline)) {
    const size_t end = SkipRun(text, pos + at.bytes, kLetter);
    if (end != pos + at.bytes) return end;
  }
  return SymbolsOrSpaces<false>(text, pos);
}

// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]* [\p{Ll}\p{Lm}\p{Lo}\p{M}]+ at `start`.
size_t O200kLower(std::string_view text, size_t start) {
  constexpr uint16_t kBoth = kCaseless | kMark;
  size_t pos = start;
  size_t last_both_end = kNoMatch;
  Peeked at = Peek(text, pos);
  for (; at.Is(kUpper | kBoth); at = Peek(text, pos)) {
    pos += at.bytes;
    if (at.Is(kBoth)) last_both_end = pos;
  }
  if (at.Is(kLower)) return SkipRun(text, pos, kLower | kBoth);
  // The first class gives back as little as lets the second match: up to the
  // last character that is in both.
  return last_both_end;
}

size_t O200kUpper(std::string_view text, size_t start) {
  const size_t end = SkipRun(text, start, kUpper | kCaseless | kMark);
  if (end == start) return kNoMatch;
  return SkipRun(text, end, kLower | kCaseless | kMark);
}

size_t O200k(std::string_view text, size_t pos) {
  const Peeked at = Peek(text, pos);
  if (at.Is(kNumber)) return SkipNumbers(text, pos, 3);
  const bool may_prefix = !at.Is(kNewline | kLetter);
  size_t end = kNoMatch;
  if (may_prefix) end = O200kLower(text, pos + at.bytes);
  if (end == kNoMatch) end = O200kLower(text, pos);
  if (end == kNoMatch && may_prefix) end = O200kUpper(text, pos + at.bytes);
  if (end == kNoMatch) end = O200kUpper(text, pos);
  if (end == kNoMatch) return SymbolsOrSpaces<true>(text, pos);
  const size_t contraction = Contraction(text, end, /*any_case=*/true);
  return contraction == kNoMatch ? end : contraction;
}

size_t DeepSeekNumbers(std::string_view text, size_t pos) {
  return Peek(text, pos).Is(kNumber) ? SkipNumbers(text, pos, 3) : kNoMatch;
}

size_t DeepSeekCjk(std::string_view text, size_t pos) {
  const size_t start = pos;
  while (pos < text.size()) {
    const Rune rune = RuneAt(text, pos);
    const bool inside = (rune.code >= 0x4E00 && rune.code <= 0x9FA5) ||
                        (rune.code >= 0x3040 && rune.code <= 0x30FF);
    if (!inside) break;
    pos += rune.bytes;
  }
  return pos == start ? kNoMatch : pos;
}

size_t DeepSeekWords(std::string_view text, size_t pos) {
  const Peeked at = Peek(text, pos);
  if (at.Is(kAsciiPunct)) {
    size_t end = pos + 1;
    while (end < text.size() && IsAsciiLetter(text[end])) ++end;
    if (end != pos + 1) return end;
  }
  constexpr uint16_t kWordPart = kLetter | kMark;
  if (!at.Is(kNewline | kLetter | kPunct | kSymbol)) {
    const size_t end = SkipRun(text, pos + at.bytes, kWordPart);
    if (end != pos + at.bytes) return end;
  }
  if (at.Is(kWordPart)) return SkipRun(text, pos, kWordPart);
  const size_t start = text[pos] == ' ' ? pos + 1 : pos;
  size_t end = SkipRun(text, start, kPunct | kSymbol);
  if (end == start) {
    return at.Is(kSpace) ? Spaces(text, pos, /*newlines=*/true) : kNoMatch;
  }
  while (end < text.size() && (text[end] == '\r' || text[end] == '\n')) ++end;
  return end;
}

template <size_t (*kMatchAt)(std::string_view, size_t)>
void FindAll(std::string_view text, std::vector<Match>* matches) {
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = kMatchAt(text, pos);
    if (end == kNoMatch) {
      pos += RuneAt(text, pos).bytes;
    } else {
      matches->push_back({pos, end});
      pos = end;
    }
  }
}

}  // namespace

std::string_view SplitPatternRegex(SplitPattern pattern) {
  for (const PatternText& row : kPatterns) {
    if (row.pattern == pattern) return row.regex;
  }
  return {};
}

std::optional<SplitPattern> RecogniseSplitPattern(std::string_view regex) {
  for (const PatternText& row : kPatterns) {
    if (row.regex == regex) return row.pattern;
  }
  return std::nullopt;
}

void FindSplits(SplitPattern pattern, std::string_view text,
                std::vector<Match>* matches) {
  switch (pattern) {
    case SplitPattern::kGpt2:
      return FindAll<Gpt2>(text, matches);
    case SplitPattern::kLlama3:
      return FindAll<Llama3<3>>(text, matches);
    case SplitPattern::kQwen2:
      return FindAll<Llama3<1>>(text, matches);
    case SplitPattern::kO200k:
      return FindAll<O200k>(text, matches);
    case SplitPattern::kDeepSeekNumbers:
      return FindAll<DeepSeekNumbers>(text, matches);
    case SplitPattern::kDeepSeekCjk:
      return FindAll<DeepSeekCjk>(text, matches);
    case SplitPattern::kDeepSeekWords:
      return FindAll<DeepSeekWords>(text, matches);
  }
}

}  // namespace inlay
