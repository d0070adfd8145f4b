// Byte-pair encoding as tokenizer.json describes it: characters (or bytes) to
// first symbols, merges to tokens. Source: Hugging Face tokenizers 0.2x.
#ifndef INLAY_CORE_TEXT_BPE_H_
#define INLAY_CORE_TEXT_BPE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/json/json.h"
#include "core/text/bpe_bounds.h"
#include "core/text/bpe_cache.h"
#include "core/text/bpe_merge.h"
#include "core/text/bpe_merges.h"
#include "core/text/token_model.h"
#include "core/text/vocabulary.h"

namespace inlay {

// A character that neither the vocabulary, nor byte tokens, nor an unknown
// token can spell gives no id, as in the library.
class BpeModel final : public TokenModel {
 public:
  struct Options {
    std::optional<int32_t> unk_id;
    bool fuse_unk = false;
    bool byte_fallback = false;
    bool ignore_merges = false;
    std::string continuing_subword_prefix;
    std::string end_of_word_suffix;
    // Pieces are raw bytes, and the vocabulary spells them in the byte-level
    // alphabet.
    bool raw_bytes = false;
  };

  // What one call keeps between its pieces. Used by one thread at a time.
  struct Scratch {
    // `text_bytes` to come: decides how large a cache is worth its clearing.
    explicit Scratch(size_t text_bytes) : cache(text_bytes) {}
    BpeMerger merger;
    BpeCache cache;
    // More ids than these are of no use: what comes behind them is left out.
    size_t max_ids = SIZE_MAX;
    bool over = false;  // there are more, or would be
  };

  // `wants_raw_bytes`: the pre-tokenizer could leave bytes as they are. Whether
  // the model takes them so is raw_bytes() of the result.
  static absl::StatusOr<std::unique_ptr<BpeModel>> Create(const Json& model,
                                                          bool wants_raw_bytes);

  bool raw_bytes() const { return options_.raw_bytes; }

  absl::Status Encode(std::string_view piece,
                      std::vector<int32_t>* ids) const override;
  // The same, reusing `scratch`. A long piece is cut where no merge joins what
  // is before and behind; so its time is that of its words.
  void EncodePiece(std::string_view piece, Scratch* scratch,
                   std::vector<int32_t>* ids) const;

  std::string_view IdToToken(int32_t id) const override {
    return vocabulary_.IdToToken(id);
  }
  std::optional<int32_t> TokenToId(std::string_view token) const override {
    return vocabulary_.TokenToId(token);
  }
  int32_t vocab_size() const override { return vocabulary_.size(); }

 private:
  BpeModel(Vocabulary vocabulary, MergeTable merges, MergeBounds bounds,
           Options options);

  // Finds the symbols that need no look-up by text.
  void FillByteTables();
  void FillBounds();
  // Collects the pieces that are one token each.
  void FillWholeWords();
  void EncodeLong(std::string_view piece, Scratch* scratch,
                  std::vector<int32_t>* ids) const;
  // `whole_words`: a part of a piece that is one of them is that token.
  void EncodePart(std::string_view part, bool whole_words, Scratch* scratch,
                  std::vector<int32_t>* ids) const;
  // Where the part of `piece` ends that begins at `begin`.
  size_t PartEnd(std::string_view piece, size_t begin) const;
  void AppendByteSymbols(std::string_view piece,
                         std::vector<int32_t>* symbols) const;
  void AppendCharSymbols(std::string_view piece,
                         std::vector<int32_t>* symbols) const;
  bool AppendFallbackBytes(std::string_view text,
                           std::vector<int32_t>* symbols) const;

  const Vocabulary vocabulary_;
  const MergeTable merges_;
  MergeBounds bounds_;
  const Options options_;
  // By byte, -1 for none: the token of its alphabet character (raw_bytes), and
  // of its <0xNN> (byte_fallback).
  std::array<int32_t, 256> alphabet_ids_;
  std::array<int32_t, 256> fallback_ids_;
  std::vector<bool> byte_cuts_;  // where raw_bytes: bounds_ of pairs of bytes
  // An id stands for at most so many bytes of a piece; 0: bytes may give none.
  size_t max_id_bytes_ = 0;
  std::vector<std::string> word_bytes_;  // where raw_bytes: the map's keys
  absl::flat_hash_map<std::string_view, int32_t> whole_words_;
};

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_BPE_H_
