// The stages that look at whole tokens and at where they stand.
#include "core/text/text_decoder_stages.h"
#include "core/text/utf8.h"

namespace inlay {
namespace {

void ReplaceAll(std::string_view from, std::string_view to, std::string* text) {
  if (text->find(from) == std::string::npos) return;
  std::string out;
  size_t pos = 0;
  for (size_t at = text->find(from); at != std::string::npos;
       at = text->find(from, pos)) {
    out.append(*text, pos, at - pos).append(to);
    pos = at + from.size();
  }
  out.append(*text, pos);
  text->swap(out);
}

// The library's cleanup of English spacing, in its order.
void CleanUp(std::string* text) {
  constexpr struct {
    std::string_view from;
    std::string_view to;
  } kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& rule : kRules) ReplaceAll(rule.from, rule.to, text);
}

// Where a token stands, as far as the rules ask.
enum class Position { kFirst, kLater };

// A stage given by what becomes of each token. `Rule` has
// bool Apply(Position, const std::string& previous, std::string* token) const;
// false drops the token.
template <typename Rule>
class WordSink final : public TokenSink {
 public:
  WordSink(const Rule& rule, TokenSink* next) : rule_(rule), next_(next) {}
  void Piece(std::string_view text) override { token_.append(text); }

  void EndToken() override {
    const Position position = any_ ? Position::kLater : Position::kFirst;
    any_ = true;
    std::string result = token_;
    if (rule_.Apply(position, previous_, &result)) {
      if (!result.empty()) next_->Piece(result);
      next_->EndToken();
    }
    previous_.swap(token_);
    token_.clear();
  }

  void Finish() override { next_->Finish(); }

 private:
  const Rule& rule_;
  TokenSink* const next_;
  std::string token_;
  std::string previous_;
  bool any_ = false;
};

template <typename Rule>
class WordStage final : public DecodeStage {
 public:
  explicit WordStage(Rule rule) : rule_(std::move(rule)) {}
  std::unique_ptr<TokenSink> Start(TokenSink* next) const override {
    return std::make_unique<WordSink<Rule>>(rule_, next);
  }
  std::string Single(std::string token) const override {
    rule_.Apply(Position::kLater, std::string(), &token);
    return token;
  }

 private:
  const Rule rule_;
};

struct MetaspaceRule {
  std::string replacement;
  bool drop_first;
  bool Apply(Position position, const std::string&, std::string* token) const {
    const bool drop = drop_first && position == Position::kFirst;
    ReplaceAll(replacement, drop ? "" : " ", token);
    return true;
  }
};

struct WordPieceRule {
  std::string prefix;
  bool cleanup;
  bool Apply(Position position, const std::string&, std::string* token) const {
    if (position == Position::kLater) {
      if (token->starts_with(prefix)) {
        token->erase(0, prefix.size());
      } else {
        token->insert(0, 1, ' ');
      }
    }
    if (cleanup) CleanUp(token);
    return true;
  }
};

struct CtcRule {
  std::string pad;
  std::string delimiter;
  bool cleanup;
  bool Apply(Position position, const std::string& previous,
             std::string* token) const {
    if (position == Position::kLater && *token == previous) return false;
    if (!pad.empty()) ReplaceAll(pad, "", token);
    if (cleanup) {
      CleanUp(token);
      if (!delimiter.empty()) ReplaceAll(delimiter, " ", token);
    }
    return !token->empty();
  }
};

struct JoinRule {
  bool Apply(Position position, const std::string&, std::string* token) const {
    if (position == Position::kLater) token->insert(0, 1, ' ');
    return true;
  }
};

struct RegexReplaceRule {
  std::shared_ptr<const Matcher> matcher;
  std::string content;
  bool Apply(Position, const std::string&, std::string* token) const {
    std::vector<Match> matches;
    // A match that runs out of its limits leaves the token as it is: decoding
    // has no way to fail.
    if (!matcher->Find(*token, &matches).ok()) return true;
    std::string out;
    size_t end = 0;
    for (const Match& match : matches) {
      out.append(*token, end, match.begin - end).append(content);
      end = match.end;
    }
    out.append(*token, end);
    token->swap(out);
    return true;
  }
};

// The last token's suffix is dropped, so each waits for its successor.
class BpeSink final : public TokenSink {
 public:
  BpeSink(const std::string& suffix, TokenSink* next)
      : suffix_(suffix), next_(next) {}
  void Piece(std::string_view text) override { token_.append(text); }
  void EndToken() override {
    if (waits_) Emit(" ");
    waiting_.swap(token_);
    token_.clear();
    waits_ = true;
  }
  void Finish() override {
    if (waits_) Emit("");
    next_->Finish();
  }

 private:
  void Emit(std::string_view suffix_text) {
    ReplaceAll(suffix_, suffix_text, &waiting_);
    if (!waiting_.empty()) next_->Piece(waiting_);
    next_->EndToken();
  }

  const std::string& suffix_;
  TokenSink* const next_;
  std::string token_;
  std::string waiting_;
  bool waits_ = false;
};

class BpeStage final : public DecodeStage {
 public:
  explicit BpeStage(std::string suffix) : suffix_(std::move(suffix)) {}
  std::unique_ptr<TokenSink> Start(TokenSink* next) const override {
    return std::make_unique<BpeSink>(suffix_, next);
  }
  std::string Single(std::string token) const override {
    ReplaceAll(suffix_, " ", &token);
    return token;
  }

 private:
  const std::string suffix_;
};

template <typename Rule>
MadeStage MakeWordStage(Rule rule) {
  return std::make_unique<WordStage<Rule>>(std::move(rule));
}

}  // namespace

MadeStage MakeMetaspaceStage(std::string replacement, bool drop_first) {
  return MakeWordStage(MetaspaceRule{std::move(replacement), drop_first});
}

MadeStage MakeWordPieceStage(std::string prefix, bool cleanup) {
  return MakeWordStage(WordPieceRule{std::move(prefix), cleanup});
}

MadeStage MakeCtcStage(std::string pad, std::string delimiter, bool cleanup) {
  return MakeWordStage(CtcRule{std::move(pad), std::move(delimiter), cleanup});
}

MadeStage MakeJoinStage() { return MakeWordStage(JoinRule{}); }

MadeStage MakeRegexReplaceStage(std::unique_ptr<Matcher> matcher,
                                std::string content) {
  return MakeWordStage(
      RegexReplaceRule{std::move(matcher), std::move(content)});
}

MadeStage MakeBpeStage(std::string suffix) {
  return std::make_unique<BpeStage>(std::move(suffix));
}

}  // namespace inlay
