// JsonTokenizer: the pipeline of a tokenizer.json (normalise, cut, look up,
// post-process; and back), put together from its stages.
#ifndef INLAY_CORE_TEXT_TOKENIZER_JSON_H_
#define INLAY_CORE_TEXT_TOKENIZER_JSON_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/added_tokens.h"
#include "core/text/bpe.h"
#include "core/text/normalizer.h"
#include "core/text/post_processor.h"
#include "core/text/pre_tokenizer.h"
#include "core/text/text_decoder.h"
#include "core/text/token_model.h"
#include "core/text/tokenizer.h"

namespace inlay {

class JsonTokenizer final : public Tokenizer {
 public:
  // `file`: the whole document. INVALID_ARGUMENT, UNIMPLEMENTED and
  // RESOURCE_EXHAUSTED as LoadTokenizer says.
  static absl::StatusOr<std::unique_ptr<JsonTokenizer>> Create(
      const Json& file);

  absl::Status Encode(std::string_view text, const EncodeOptions& options,
                      std::vector<int32_t>* ids) const override;
  absl::Status EncodePair(std::string_view a, std::string_view b,
                          const EncodeOptions& options,
                          std::vector<int32_t>* ids,
                          std::vector<int32_t>* types) const override;
  std::unique_ptr<DecodeStream> StartDecode(
      const DecodeOptions& options) const override;
  int32_t vocab_size() const override;
  std::optional<int32_t> TokenToId(std::string_view token) const override;
  std::string_view IdToToken(int32_t id) const override;
  bool IsSpecial(int32_t id) const override;
  std::string TokenBytes(int32_t id) const override;

  // Whether texts without added tokens are encoded part by part (word_cut.h).
  bool cuts_at_words() const { return cuts_at_words_; }

 private:
  class Encoder;
  class Stream;

  JsonTokenizer() = default;
  absl::Status ReadModel(const Json& file);
  absl::Status ReadRest(const Json& file);
  absl::Status EncodeText(std::string_view text, const EncodeOptions& options,
                          std::vector<int32_t>* ids) const;

  std::unique_ptr<Normalizer> normalizer_;  // nullptr: none
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  std::unique_ptr<TokenModel> model_;
  const BpeModel* bpe_ = nullptr;  // model_, where it is one
  AddedTokens added_;
  PostProcessor post_;
  std::unique_ptr<TextDecoder> decoder_;
  bool cuts_at_words_ = false;
};

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_TOKENIZER_JSON_H_
