// Encoding; the file's reading is bpe_load.cc.
#include "core/text/bpe.h"

#include <algorithm>

#include "core/text/byte_alphabet.h"
#include "core/text/utf8.h"
#include "memory/formatted_string.h"

namespace inlay {
namespace {

// Longer tokens are no words; trying them all would cost loading time. Longer
// pieces are worth cutting.
constexpr size_t kMaxWholeWordBytes = 64;

bool HasAffixes(const BpeModel::Options& options) {
  return !options.continuing_subword_prefix.empty() ||
         !options.end_of_word_suffix.empty();
}

}  // namespace

BpeModel::BpeModel(Vocabulary vocabulary, MergeTable merges, MergeBounds bounds,
                   Options options)
    : vocabulary_(std::move(vocabulary)),
      merges_(std::move(merges)),
      bounds_(std::move(bounds)),
      options_(std::move(options)) {
  FillByteTables();
  FillBounds();
  FillWholeWords();
}

void BpeModel::FillByteTables() {
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelled;
    AppendRune(ByteToAlphabet(static_cast<uint8_t>(byte)), &spelled);
    alphabet_ids_[byte] = vocabulary_.TokenToId(spelled).value_or(-1);
    fallback_ids_[byte] =
        vocabulary_.TokenToId(FormattedString("<0x%02X>", byte)).value_or(-1);
  }
}

void BpeModel::FillBounds() {
  const auto has_id = [](int32_t id) { return id >= 0; };
  const bool spells_all = std::all_of(
      options_.raw_bytes ? alphabet_ids_.begin() : fallback_ids_.begin(),
      options_.raw_bytes ? alphabet_ids_.end() : fallback_ids_.end(), has_id);
  const bool covers =
      spells_all && (options_.raw_bytes || options_.byte_fallback);
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string_view token = vocabulary_.IdToToken(id);
    if (token.empty()) continue;
    if (covers) max_id_bytes_ = std::max(max_id_bytes_, token.size());
    // With affixes a character is spelled by its place in the piece: none is a
    // token, and nothing is cut.
    const Rune first = RuneAt(token, 0);
    if (first.bytes == token.size() && !HasAffixes(options_)) {
      bounds_.AddToken(first.code);
    }
  }
  if (!options_.raw_bytes) return;
  byte_cuts_.resize(256 * 256);
  for (size_t pair = 0; pair < byte_cuts_.size(); ++pair) {
    byte_cuts_[pair] =
        bounds_.CanCut(ByteToAlphabet(static_cast<uint8_t>(pair >> 8)),
                       ByteToAlphabet(static_cast<uint8_t>(pair & 255)));
  }
}

void BpeModel::FillWholeWords() {
  // The keys must not move while the map views them.
  if (options_.raw_bytes) {
    word_bytes_.reserve(static_cast<size_t>(vocabulary_.size()));
  }
  // As large as it gets, an eighth of it free: a flat_hash_map that finds no
  // memory to grow is lost.
  const auto size = static_cast<size_t>(vocabulary_.size());
  absl::flat_hash_map<std::string_view, int32_t> words(size + size / 7 + 1);
  Scratch scratch(0);
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    std::string_view word = vocabulary_.IdToToken(id);
    if (word.empty()) continue;
    if (options_.raw_bytes) {
      std::string bytes;
      if (!AppendAlphabetBytes(word, &bytes)) continue;
      word_bytes_.push_back(std::move(bytes));
      word = word_bytes_.back();
    }
    if (!options_.ignore_merges) {
      if (word.size() > kMaxWholeWordBytes) continue;
      ids.clear();
      EncodePiece(word, &scratch, &ids);
      if (ids.size() != 1 || ids[0] != id) continue;
    }
    words.emplace(word, id);
  }
  whole_words_ = std::move(words);
}

absl::Status BpeModel::Encode(std::string_view piece,
                              std::vector<int32_t>* ids) const {
  Scratch scratch(0);
  EncodePiece(piece, &scratch, ids);
  return absl::OkStatus();
}

void BpeModel::EncodePiece(std::string_view piece, Scratch* scratch,
                           std::vector<int32_t>* ids) const {
  if (piece.size() <= kMaxWholeWordBytes) {
    return EncodePart(piece, /*whole_words=*/true, scratch, ids);
  }
  EncodeLong(piece, scratch, ids);
}

void BpeModel::EncodeLong(std::string_view piece, Scratch* scratch,
                          std::vector<int32_t>* ids) const {
  if (options_.ignore_merges) {
    if (const auto it = whole_words_.find(piece); it != whole_words_.end()) {
      ids->push_back(it->second);
      return;
    }
  }
  // Otherwise merges lead to whole words, so that they do in parts, too.
  const bool whole_words = !options_.ignore_merges;
  for (size_t begin = 0; begin < piece.size() && !scratch->over;) {
    const size_t end = PartEnd(piece, begin);
    EncodePart(piece.substr(begin, end - begin), whole_words, scratch, ids);
    scratch->over |= ids->size() > scratch->max_ids;
    begin = end;
  }
}

size_t BpeModel::PartEnd(std::string_view piece, size_t begin) const {
  if (options_.raw_bytes) {
    for (size_t pos = begin + 1; pos < piece.size(); ++pos) {
      const size_t pair = size_t{static_cast<uint8_t>(piece[pos - 1])} << 8 |
                          static_cast<uint8_t>(piece[pos]);
      if (byte_cuts_[pair]) return pos;
    }
    return piece.size();
  }
  Rune last = RuneAt(piece, begin);
  for (size_t pos = begin + last.bytes; pos < piece.size();) {
    const Rune rune = RuneAt(piece, pos);
    if (bounds_.CanCut(last.code, rune.code)) return pos;
    last = rune;
    pos += rune.bytes;
  }
  return piece.size();
}

void BpeModel::EncodePart(std::string_view part, bool whole_words,
                          Scratch* scratch, std::vector<int32_t>* ids) const {
  const size_t hash = whole_words_.hash_function()(part);
  if (whole_words) {
    if (const auto it = whole_words_.find(part, hash);
        it != whole_words_.end()) {
      ids->push_back(it->second);
      return;
    }
  }
  const absl::Span<const int32_t> cached = scratch->cache.Find(part, hash);
  if (!cached.empty()) {
    ids->insert(ids->end(), cached.begin(), cached.end());
    return;
  }
  // Nothing that long need be merged to know that there are too many.
  if (max_id_bytes_ > 0 && ids->size() <= scratch->max_ids &&
      part.size() / max_id_bytes_ > scratch->max_ids - ids->size()) {
    scratch->over = true;
    return;
  }
  std::vector<int32_t>& symbols = scratch->merger.symbols();
  symbols.clear();
  if (options_.raw_bytes) {
    AppendByteSymbols(part, &symbols);
  } else {
    AppendCharSymbols(part, &symbols);
  }
  scratch->merger.Merge(merges_);
  scratch->cache.Insert(part, hash, symbols);
  ids->insert(ids->end(), symbols.begin(), symbols.end());
}

void BpeModel::AppendByteSymbols(std::string_view piece,
                                 std::vector<int32_t>* symbols) const {
  for (const char c : piece) {
    const int32_t id = alphabet_ids_[static_cast<uint8_t>(c)];
    if (id >= 0) symbols->push_back(id);
  }
}

// All of the bytes, or false and none.
bool BpeModel::AppendFallbackBytes(std::string_view text,
                                   std::vector<int32_t>* symbols) const {
  for (const char c : text) {
    if (fallback_ids_[static_cast<uint8_t>(c)] < 0) return false;
  }
  for (const char c : text) {
    symbols->push_back(fallback_ids_[static_cast<uint8_t>(c)]);
  }
  return true;
}

void BpeModel::AppendCharSymbols(std::string_view piece,
                                 std::vector<int32_t>* symbols) const {
  const bool affixes = HasAffixes(options_);
  std::string affixed;
  // An unknown token waits until it is clear that no other joins it; bytes
  // overtake it, as in the library.
  bool unk_waits = false;
  for (size_t pos = 0; pos < piece.size();) {
    const size_t end = pos + RuneAt(piece, pos).bytes;
    std::string_view symbol = piece.substr(pos, end - pos);
    if (affixes) {
      affixed.clear();
      if (pos > 0) affixed = options_.continuing_subword_prefix;
      affixed.append(symbol);
      if (end == piece.size()) affixed.append(options_.end_of_word_suffix);
      symbol = affixed;
    }
    pos = end;
    if (const auto id = vocabulary_.TokenToId(symbol)) {
      if (unk_waits) symbols->push_back(*options_.unk_id);
      unk_waits = false;
      symbols->push_back(*id);
    } else if (options_.byte_fallback && AppendFallbackBytes(symbol, symbols)) {
      continue;
    } else if (options_.unk_id) {
      if (unk_waits && !options_.fuse_unk) symbols->push_back(*options_.unk_id);
      unk_waits = true;
    }
  }
  if (unk_waits) symbols->push_back(*options_.unk_id);
}

}  // namespace inlay
