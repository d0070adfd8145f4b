// Pre-tokenizers: cut a normalised text into the pieces that the model sees one
// by one. Know nothing of vocabularies. Source: Hugging Face tokenizers 0.2x.
#ifndef INLAY_CORE_TEXT_PRE_TOKENIZER_H_
#define INLAY_CORE_TEXT_PRE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/json/json.h"
#include "core/text/word_cut.h"

namespace inlay {

// A text and the pieces it is cut into, in order; what is between them is
// dropped. Spans are byte offsets, so texts are below 4 GiB.
class Pieces {
 public:
  struct Span {
    uint32_t begin;
    uint32_t end;
  };

  // One piece, the whole of `text` (valid UTF-8, not owned). `at_start`: it
  // opens the text that the caller gave, rather than following an added token.
  void Reset(std::string_view text, bool at_start);

  size_t size() const { return spans_.size(); }
  std::string_view operator[](size_t i) const {
    return text_.substr(spans_[i].begin, spans_[i].end - spans_[i].begin);
  }
  const Span& span(size_t i) const { return spans_[i]; }
  // Whether piece `i` opens the text that the caller gave.
  bool AtStart(size_t i) const { return at_start_ && spans_[i].begin == 0; }

  // Cuts anew: `spans` lie in the present text, empty ones are dropped.
  void Recut(std::vector<Span>* spans);
  // Replaces text and pieces.
  void Rewrite(std::string text, std::vector<Span>* spans);

 private:
  std::string storage_;
  std::string_view text_;
  std::vector<Span> spans_;
  bool at_start_ = false;
};

// Immutable: any number of threads may use it at once.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Whatever it does, it does to each piece by itself.
  virtual absl::Status Apply(Pieces* pieces) const = 0;
  virtual WordCut word_cut() const { return WordCut::kNone; }
};

// `raw_bytes`: the model takes bytes as they are, so a ByteLevel step that
// comes last leaves out its spelling of bytes as characters. A null `spec`
// leaves the text whole. INVALID_ARGUMENT, or UNIMPLEMENTED naming the type.
absl::StatusOr<std::unique_ptr<PreTokenizer>> MakePreTokenizer(const Json& spec,
                                                               bool raw_bytes);

// Whether the last step of `spec` is ByteLevel.
bool EndsInByteLevel(const Json& spec);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_PRE_TOKENIZER_H_
