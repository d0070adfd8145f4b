// TextDecoder: from tokens, as the vocabulary spells them, to text, as a chain
// of streaming stages. Knows no ids. Source: Hugging Face tokenizers 0.2x.
#ifndef INLAY_CORE_TEXT_TEXT_DECODER_H_
#define INLAY_CORE_TEXT_TEXT_DECODER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/json/json.h"

namespace inlay {

// Takes tokens, each as pieces of whole code points and an end.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void Piece(std::string_view text) = 0;
  virtual void EndToken() = 0;
  // After the last token; once.
  virtual void Finish() = 0;
};

// One decoder of the file. Immutable; the state of a text is in the sink it
// makes. A stage passes on what no later token can change as soon as it can.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  // A sink that feeds `next`, which must outlive it, as must the stage.
  virtual std::unique_ptr<TokenSink> Start(TokenSink* next) const = 0;
  // What a single token in the middle of a text becomes: may be bytes that are
  // no whole character.
  virtual std::string Single(std::string token) const = 0;
};

// Immutable: any number of threads may use it at once.
class TextDecoder {
 public:
  // A null `spec` joins tokens by spaces, as the library does.
  // INVALID_ARGUMENT, or UNIMPLEMENTED naming the type.
  static absl::StatusOr<TextDecoder> Create(const Json& spec);

  // The running state of one text.
  class Stream {
   public:
    // Appends what became certain to `text`.
    void Push(std::string_view token, std::string* text);
    // Appends the rest. The last call.
    void Finish(std::string* text);

   private:
    friend class TextDecoder;
    explicit Stream(const TextDecoder& decoder);

    struct Output;
    std::unique_ptr<TokenSink> output_;
    std::vector<std::unique_ptr<TokenSink>> sinks_;  // the last is the first
    std::string* text_ = nullptr;
  };

  // The decoder must outlive the stream.
  std::unique_ptr<Stream> Start() const;
  // See DecodeStage::Single, through all stages.
  std::string Single(std::string_view token) const;

 private:
  absl::Status Add(const Json& spec);

  std::vector<std::unique_ptr<DecodeStage>> stages_;
  double growth_ = 1;  // output over input bytes at most
};

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_TEXT_DECODER_H_
