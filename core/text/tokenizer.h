// Tokenizer: text to token ids and back, whatever file describes it.
// Knows nothing of models, sessions or chat templates.
#ifndef INLAY_CORE_TEXT_TOKENIZER_H_
#define INLAY_CORE_TEXT_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/json/json.h"

namespace inlay {

struct EncodeOptions {
  // Add what the post-processor adds (BOS, EOS, separators).
  bool add_special = true;
  // Text that spells an added token becomes that token. False for text that is
  // not trusted to write control tokens.
  bool parse_special = true;
  // The text is of a chat template: what spells a control piece of a
  // SentencePiece model is that piece, also where that is otherwise text.
  bool parse_control = false;
  // With more ids than these, those that are added left out, the text is of no
  // use: OUT_OF_RANGE as soon as that is known, often long before its end.
  size_t max_ids = SIZE_MAX;
};

struct DecodeOptions {
  bool skip_special = false;
};

// One text being decoded token by token. A decoder's rules look back (joining
// spaces, stripped fronts, bytes that form one character), so the state lives
// here. Used by one thread at a time; must not outlive its tokenizer.
class DecodeStream {
 public:
  virtual ~DecodeStream() = default;
  // Appends to `text` what became certain: no later token can change it, and
  // it is whole UTF-8 code points. Ids out of range are skipped.
  virtual void Push(int32_t id, std::string* text) = 0;
  // Appends what was held back; a cut character gives U+FFFD. The last call.
  virtual void Finish(std::string* text) = 0;
};

// Immutable after construction: every method may run from any number of
// threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of `text` to `ids` (not all of them on errors). Invalid
  // UTF-8 is read as U+FFFD, one for each maximal invalid subsequence.
  virtual absl::Status Encode(std::string_view text,
                              const EncodeOptions& options,
                              std::vector<int32_t>* ids) const = 0;
  // The same for two segments, joined as the post-processor joins them.
  // `types`, unless null, gets a token type for each id appended.
  virtual absl::Status EncodePair(std::string_view a, std::string_view b,
                                  const EncodeOptions& options,
                                  std::vector<int32_t>* ids,
                                  std::vector<int32_t>* types) const = 0;

  // Decoding is defined as a stream, so that text shown piece by piece and the
  // text of the whole cannot differ.
  virtual std::unique_ptr<DecodeStream> StartDecode(
      const DecodeOptions& options) const = 0;
  // Pushes all of `ids` through one stream; ids out of range are skipped.
  std::string Decode(absl::Span<const int32_t> ids,
                     const DecodeOptions& options) const;

  // One above the largest id.
  virtual int32_t vocab_size() const = 0;
  virtual std::optional<int32_t> TokenToId(std::string_view token) const = 0;
  // As the vocabulary spells it; empty for ids out of range. Valid as long as
  // the tokenizer.
  virtual std::string_view IdToToken(int32_t id) const = 0;
  virtual bool IsSpecial(int32_t id) const = 0;
  // The raw bytes that the token stands for in the middle of a text (a byte of
  // a character may stand alone); empty for ids out of range.
  virtual std::string TokenBytes(int32_t id) const = 0;
};

// Reads tokenizer.json, else T5's spiece.model (t5_tokenizer.h), RWKV's list of
// tokens (rwkv_vocab.h) or tokenizer.model (and what tokenizer_config.json says
// of BOS and EOS around texts), from the folder `dir`, with the tokens that
// tokenizer_config.json or added_tokens.json add. NOT_FOUND when it holds none,
// RESOURCE_EXHAUSTED for a file above 256 MiB, INVALID_ARGUMENT for a malformed
// one, UNIMPLEMENTED (named) for a well-formed one that asks for something
// unknown.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const std::string& dir);

// What is read there, as a document of MakeTokenizerFromDocument's. The same
// errors.
absl::StatusOr<Json> ReadTokenizerDocument(const std::string& dir);

// The same from the text of a tokenizer.json, or from the document (which may
// be one of sentencepiece_document.h).
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizerFromJson(
    std::string_view json);
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizerFromDocument(
    const Json& file);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_TOKENIZER_H_
