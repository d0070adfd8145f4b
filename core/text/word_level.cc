// The model in a table look-up.
#include "core/text/word_level.h"

#include "core/text/vocabulary.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

class WordLevel final : public TokenModel {
 public:
  WordLevel(Vocabulary vocabulary, std::optional<int32_t> unk_id)
      : vocabulary_(std::move(vocabulary)), unk_id_(unk_id) {}

  absl::Status Encode(std::string_view piece,
                      std::vector<int32_t>* ids) const override {
    const std::optional<int32_t> id = vocabulary_.TokenToId(piece);
    if (!id && !unk_id_) {
      return absl::InvalidArgumentError(FormattedString(
          "WordLevel: \"%s\" is not in the vocabulary, which has no unknown "
          "token",
          piece.substr(0, 80)));
    }
    ids->push_back(id ? *id : *unk_id_);
    return absl::OkStatus();
  }
  std::string_view IdToToken(int32_t id) const override {
    return vocabulary_.IdToToken(id);
  }
  std::optional<int32_t> TokenToId(std::string_view token) const override {
    return vocabulary_.TokenToId(token);
  }
  int32_t vocab_size() const override { return vocabulary_.size(); }

 private:
  const Vocabulary vocabulary_;
  const std::optional<int32_t> unk_id_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TokenModel>> MakeWordLevelFromJson(
    const Json& model) {
  INLAY_ASSIGN_OR_RETURN(Vocabulary vocabulary,
                         Vocabulary::Create(JsonFind(model, "vocab")));
  INLAY_ASSIGN_OR_RETURN(const std::string unk,
                         JsonString(model, "unk_token", "<unk>"));
  const std::optional<int32_t> unk_id = vocabulary.TokenToId(unk);
  return std::make_unique<WordLevel>(std::move(vocabulary), unk_id);
}

}  // namespace inlay
