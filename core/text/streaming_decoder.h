// StreamingDecoder: the text of a growing list of ids, whole code points at a
// time. Knows only the Tokenizer's DecodeStream.
#ifndef INLAY_CORE_TEXT_STREAMING_DECODER_H_
#define INLAY_CORE_TEXT_STREAMING_DECODER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "core/text/tokenizer.h"

namespace inlay {

// The pushes' texts and Finish()'s, joined, equal Tokenizer::Decode of all the
// ids. To continue a prompt, push the prompt's ids first and drop their text.
// Constant time a token. Used by one thread at a time; the tokenizer must
// outlive it.
class StreamingDecoder {
 public:
  StreamingDecoder(const Tokenizer& tokenizer, const DecodeOptions& options)
      : stream_(tokenizer.StartDecode(options)) {}

  // What became certain by this token; often empty in the middle of a
  // character.
  std::string Push(int32_t id) {
    std::string text;
    stream_->Push(id, &text);
    return text;
  }

  // What was held back, incomplete bytes as U+FFFD. The last call.
  std::string Finish() {
    std::string text;
    stream_->Finish(&text);
    return text;
  }

 private:
  std::unique_ptr<DecodeStream> stream_;
};

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_STREAMING_DECODER_H_
