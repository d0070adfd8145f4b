// Loading and searching the precompiled character map (precompiled_charsmap.h).
//
// A unit of the double array, a little-endian uint32:
//   bits 0-7  label: the byte that leads here (a value unit has bit 31 set and
//             the value, an offset into the replacements, in bits 0-30)
//   bit 8     a value unit hangs below this one
//   bit 9     the offset is in units of 256
//   bits 10-  offset: XORed into the unit's own index it gives the index that,
//             XORed with the next byte, is the child
#include "core/text/precompiled_charsmap.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "memory/formatted_string.h"

namespace inlay {
namespace {

// Real maps have keys of some 20 bytes and replacements of some 40. Capped
// because a hostile array may loop, and a hostile replacement multiply the
// text.
constexpr size_t kMaxKeyBytes = 64;
constexpr size_t kMaxReplacementBytes = 512;
// Clusters of at least this many bytes are looked up by code points only.
constexpr size_t kGraphemeBytes = 6;
constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

uint32_t ReadUint32(std::string_view bytes) {
  const auto at = [bytes](size_t i) {
    return uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  };
  return at(0) | at(1) | at(2) | at(3);
}

uint32_t Label(uint32_t unit) { return unit & (uint32_t{1} << 31 | 0xFF); }
bool HasValue(uint32_t unit) { return (unit >> 8 & 1) != 0; }
size_t Value(uint32_t unit) { return unit & ~(uint32_t{1} << 31); }
size_t Offset(uint32_t unit) {
  return size_t{unit >> 10} << ((unit & uint32_t{1} << 9) >> 6);
}

// Bytes of the code point that starts `text` (not empty), 0 if it is malformed.
size_t CodePointLength(std::string_view text) {
  utf8proc_int32_t code_point = 0;
  const auto length = utf8proc_iterate(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
      static_cast<utf8proc_ssize_t>(std::min<size_t>(text.size(), 4)),
      &code_point);
  return length > 0 ? static_cast<size_t>(length) : 0;
}

// Bytes of the extended grapheme cluster that starts `text` (not empty);
// malformed bytes stand alone.
size_t ClusterLength(std::string_view text) {
  utf8proc_int32_t state = 0;
  utf8proc_int32_t previous = -1;
  size_t length = 0;
  while (length < text.size()) {
    utf8proc_int32_t code_point = 0;
    const auto bytes = utf8proc_iterate(
        reinterpret_cast<const utf8proc_uint8_t*>(text.data() + length),
        static_cast<utf8proc_ssize_t>(
            std::min<size_t>(text.size() - length, 4)),
        &code_point);
    if (bytes <= 0) break;
    if (previous >= 0 &&
        utf8proc_grapheme_break_stateful(previous, code_point, &state)) {
      break;
    }
    previous = code_point;
    length += static_cast<size_t>(bytes);
  }
  return std::max<size_t>(length, 1);
}

}  // namespace

absl::StatusOr<PrecompiledCharsMap> PrecompiledCharsMap::Create(
    std::string bytes) {
  PrecompiledCharsMap map;
  if (bytes.empty()) return map;
  std::string_view rest = bytes;
  if (rest.size() < sizeof(uint32_t)) {
    return absl::InvalidArgumentError(FormattedString(
        "character map: %d bytes, at least 4 expected", rest.size()));
  }
  const uint32_t trie_bytes = ReadUint32(rest);
  rest.remove_prefix(sizeof(uint32_t));
  if (trie_bytes > rest.size() || trie_bytes % sizeof(uint32_t) != 0 ||
      trie_bytes == 0) {
    return absl::InvalidArgumentError(FormattedString(
        "character map: a trie of %d bytes, a positive multiple of 4 up to the "
        "%d bytes that follow expected",
        trie_bytes, rest.size()));
  }
  map.units_.reserve(trie_bytes / sizeof(uint32_t));
  for (size_t i = 0; i < trie_bytes; i += sizeof(uint32_t)) {
    map.units_.push_back(ReadUint32(rest.substr(i)));
  }
  rest.remove_prefix(trie_bytes);
  if (!rest.empty() && rest.back() != '\0') {
    return absl::InvalidArgumentError(
        "character map: the last replacement does not end in NUL");
  }
  for (size_t begin = 0; begin < rest.size();) {
    const size_t end = rest.find('\0', begin);
    if (end - begin > kMaxReplacementBytes) {
      return absl::InvalidArgumentError(FormattedString(
          "character map: a replacement of %d bytes, at most %d allowed",
          end - begin, kMaxReplacementBytes));
    }
    begin = end + 1;
  }
  map.replacements_ = std::string(rest);
  return map;
}

std::string_view PrecompiledCharsMap::Replacement(size_t value_index) const {
  if (value_index >= units_.size()) return {};
  const size_t at = Value(units_[value_index]);
  if (at >= replacements_.size()) return {};
  return replacements_.c_str() + at;
}

std::optional<PrecompiledCharsMap::Match> PrecompiledCharsMap::Find(
    std::string_view text, bool longest) const {
  std::optional<Match> match;
  if (units_.empty()) return match;
  size_t index = Offset(units_[0]);
  for (size_t i = 0; i < std::min(text.size(), kMaxKeyBytes); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    index ^= byte;
    if (index >= units_.size() || Label(units_[index]) != byte) break;
    const uint32_t unit = units_[index];
    index ^= Offset(unit);
    if (!HasValue(unit)) continue;
    match = Match{i + 1, Replacement(index)};
    if (!longest) break;
  }
  return match;
}

void PrecompiledCharsMap::Normalize(std::string_view in,
                                    std::string* out) const {
  // Hugging Face's lookup takes the shortest key that starts the text and drops
  // the rest of it: models were trained with that.
  const auto replace = [this, out](std::string_view text) {
    // Its keys end at a NUL, so that a NUL itself is never found.
    const auto match = Find(text.substr(0, text.find('\0')), /*longest=*/false);
    if (match.has_value()) out->append(match->replacement);
    return match.has_value();
  };
  while (!in.empty()) {
    std::string_view cluster = in.substr(0, ClusterLength(in));
    in.remove_prefix(cluster.size());
    if (cluster.size() < kGraphemeBytes && replace(cluster)) continue;
    while (!cluster.empty()) {
      const std::string_view code_point =
          cluster.substr(0, std::max<size_t>(CodePointLength(cluster), 1));
      cluster.remove_prefix(code_point.size());
      if (!replace(code_point)) out->append(code_point);
    }
  }
}

void PrecompiledCharsMap::NormalizeLongestPrefix(std::string_view in,
                                                 std::string* out) const {
  while (!in.empty()) {
    const Match match = NormalizePrefix(in);
    out->append(match.replacement);
    in.remove_prefix(match.length);
  }
}

PrecompiledCharsMap::Match PrecompiledCharsMap::NormalizePrefix(
    std::string_view text) const {
  const auto match = Find(text, /*longest=*/true);
  if (match.has_value()) return *match;
  const size_t length = CodePointLength(text);
  if (length == 0) return {1, kReplacementCharacter};
  return {length, text.substr(0, length)};
}

}  // namespace inlay
