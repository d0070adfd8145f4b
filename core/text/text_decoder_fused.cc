// The stages that usually see one long fused token, and so must pass on what
// they can before it ends: Fuse, Strip, Replace.
#include "core/text/text_decoder_stages.h"
#include "core/text/utf8.h"

namespace inlay {
namespace {

class FuseSink final : public TokenSink {
 public:
  explicit FuseSink(TokenSink* next) : next_(next) {}
  void Piece(std::string_view text) override { next_->Piece(text); }
  void EndToken() override {}
  void Finish() override {
    next_->EndToken();
    next_->Finish();
  }

 private:
  TokenSink* const next_;
};

class FuseStage final : public DecodeStage {
 public:
  std::unique_ptr<TokenSink> Start(TokenSink* next) const override {
    return std::make_unique<FuseSink>(next);
  }
  std::string Single(std::string token) const override { return token; }
};

struct StripRule {
  std::string content;  // one character
  size_t start;
  size_t stop;
};

class StripSink final : public TokenSink {
 public:
  StripSink(const StripRule& rule, TokenSink* next)
      : rule_(rule), next_(next) {}

  void Piece(std::string_view text) override {
    size_t pos = 0;
    while (stripped_ < rule_.start &&
           text.substr(pos).starts_with(rule_.content)) {
      pos += rule_.content.size();
      ++stripped_;
    }
    if (pos == text.size()) return;
    stripped_ = rule_.start;
    size_t end = text.size();
    size_t trailing = 0;
    while (end > pos && text.substr(pos, end - pos).ends_with(rule_.content)) {
      end -= rule_.content.size();
      ++trailing;
    }
    if (end > pos) {
      Release(held_);
      next_->Piece(text.substr(pos, end - pos));
    }
    held_ += trailing;
    if (held_ > rule_.stop) Release(held_ - rule_.stop);
  }

  void EndToken() override {
    stripped_ = 0;
    held_ = 0;
    next_->EndToken();
  }

  void Finish() override { next_->Finish(); }

 private:
  // Held characters are all the same: only their number matters.
  void Release(size_t count) {
    for (size_t i = 0; i < count; ++i) next_->Piece(rule_.content);
    held_ -= count;
  }

  const StripRule& rule_;
  TokenSink* const next_;
  size_t stripped_ = 0;
  size_t held_ = 0;  // characters at the end so far that may yet be stripped
};

class StripStage final : public DecodeStage {
 public:
  explicit StripStage(StripRule rule) : rule_(std::move(rule)) {}
  std::unique_ptr<TokenSink> Start(TokenSink* next) const override {
    return std::make_unique<StripSink>(rule_, next);
  }
  std::string Single(std::string token) const override { return token; }

 private:
  const StripRule rule_;
};

struct ReplaceRule {
  std::string needle;  // not empty
  std::string content;
};

class ReplaceSink final : public TokenSink {
 public:
  ReplaceSink(const ReplaceRule& rule, TokenSink* next)
      : rule_(rule), next_(next) {}

  void Piece(std::string_view text) override {
    pending_.append(text);
    std::string out;
    size_t pos = 0;
    for (size_t at = pending_.find(rule_.needle); at != std::string::npos;
         at = pending_.find(rule_.needle, pos)) {
      out.append(pending_, pos, at - pos).append(rule_.content);
      pos = at + rule_.needle.size();
    }
    const size_t tail = HeldTail(pos);
    out.append(pending_, pos, pending_.size() - tail - pos);
    pending_.erase(0, pending_.size() - tail);
    if (!out.empty()) next_->Piece(out);
  }

  void EndToken() override {
    if (!pending_.empty()) next_->Piece(pending_);
    pending_.clear();
    next_->EndToken();
  }

  void Finish() override { next_->Finish(); }

 private:
  // Bytes at the end of pending_, behind `pos`, that may start an occurrence.
  size_t HeldTail(size_t pos) const {
    const std::string_view rest = std::string_view(pending_).substr(pos);
    size_t tail = std::min(rest.size(), rule_.needle.size() - 1);
    const std::string_view needle = rule_.needle;
    while (tail > 0 && !rest.ends_with(needle.substr(0, tail))) --tail;
    return tail;
  }

  const ReplaceRule& rule_;
  TokenSink* const next_;
  std::string pending_;
};

class ReplaceStage final : public DecodeStage {
 public:
  explicit ReplaceStage(ReplaceRule rule) : rule_(std::move(rule)) {}
  std::unique_ptr<TokenSink> Start(TokenSink* next) const override {
    return std::make_unique<ReplaceSink>(rule_, next);
  }
  std::string Single(std::string token) const override {
    size_t pos = token.find(rule_.needle);
    while (pos != std::string::npos) {
      token.replace(pos, rule_.needle.size(), rule_.content);
      pos = token.find(rule_.needle, pos + rule_.content.size());
    }
    return token;
  }

 private:
  const ReplaceRule rule_;
};

}  // namespace

MadeStage MakeFuseStage() { return std::make_unique<FuseStage>(); }

MadeStage MakeStripStage(std::string content, size_t start, size_t stop) {
  return std::make_unique<StripStage>(
      StripRule{std::move(content), start, stop});
}

MadeStage MakeReplaceStage(std::string needle, std::string content) {
  return std::make_unique<ReplaceStage>(
      ReplaceRule{std::move(needle), std::move(content)});
}

}  // namespace inlay
