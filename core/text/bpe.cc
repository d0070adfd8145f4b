// Encoding; the file's reading is bpe_load.cc.
#include "core/text/bpe.h"

#include "core/text/byte_alphabet.h"
#include "core/text/utf8.h"
#include "memory/formatted_string.h"

namespace inlay {
namespace {

// Longer tokens are no words; trying them all would cost loading time.
constexpr size_t kMaxWholeWordBytes = 64;

}  // namespace

BpeModel::BpeModel(Vocabulary vocabulary, MergeTable merges, Options options)
    : vocabulary_(std::move(vocabulary)),
      merges_(std::move(merges)),
      options_(std::move(options)) {
  FillByteTables();
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
  const size_t hash = whole_words_.hash_function()(piece);
  if (const auto it = whole_words_.find(piece, hash);
      it != whole_words_.end()) {
    ids->push_back(it->second);
    return;
  }
  const absl::Span<const int32_t> cached = scratch->cache.Find(piece, hash);
  if (!cached.empty()) {
    ids->insert(ids->end(), cached.begin(), cached.end());
    return;
  }
  std::vector<int32_t>& symbols = scratch->merger.symbols();
  symbols.clear();
  if (options_.raw_bytes) {
    AppendByteSymbols(piece, &symbols);
  } else {
    AppendCharSymbols(piece, &symbols);
  }
  scratch->merger.Merge(merges_);
  scratch->cache.Insert(piece, hash, symbols);
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
  const bool affixes = !options_.continuing_subword_prefix.empty() ||
                       !options_.end_of_word_suffix.empty();
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
