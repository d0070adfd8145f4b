// The stages that turn tokens into bytes and bytes into characters.
#include "core/text/byte_alphabet.h"
#include "core/text/text_decoder_stages.h"
#include "core/text/utf8.h"

namespace inlay {
namespace {

std::string AlphabetBytes(std::string_view token) {
  std::string bytes;
  // An added token may hold characters that stand for no byte.
  if (!AppendAlphabetBytes(token, &bytes)) bytes.assign(token);
  return bytes;
}

class ByteLevelSink final : public TokenSink {
 public:
  explicit ByteLevelSink(TokenSink* next) : next_(next) {}
  void Piece(std::string_view text) override { token_.append(text); }

  void EndToken() override {
    any_ = true;
    bytes_.append(AlphabetBytes(token_));
    token_.clear();
    // A character that is cut at the end may still be completed.
    size_t end = bytes_.size();
    for (size_t pos = 0; pos < bytes_.size();) {
      const Utf8Step step = StepUtf8(bytes_, pos);
      if (step.kind == Utf8Kind::kCut) end = pos;
      pos += step.bytes;
    }
    Emit(end);
  }

  void Finish() override {
    Emit(bytes_.size());
    if (any_) next_->EndToken();
    next_->Finish();
  }

 private:
  void Emit(size_t end) {
    std::string text;
    AppendValidUtf8(std::string_view(bytes_).substr(0, end), &text);
    bytes_.erase(0, end);
    if (!text.empty()) next_->Piece(text);
  }

  TokenSink* const next_;
  std::string token_;
  std::string bytes_;
  bool any_ = false;
};

class ByteLevelStage final : public DecodeStage {
 public:
  std::unique_ptr<TokenSink> Start(TokenSink* next) const override {
    return std::make_unique<ByteLevelSink>(next);
  }
  std::string Single(std::string token) const override {
    return AlphabetBytes(token);
  }
};

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') return (c | 0x20) - 'a' + 10;
  return -1;
}

// The byte of <0xNN>, or -1.
int ByteTokenValue(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') {
    return -1;
  }
  const int high = HexDigit(token[3]);
  const int low = HexDigit(token[4]);
  // The library reads the digits as an integer, which may carry a plus sign.
  if (token[3] == '+' && low >= 0) return low;
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

class ByteFallbackSink final : public TokenSink {
 public:
  explicit ByteFallbackSink(TokenSink* next) : next_(next) {}
  void Piece(std::string_view text) override { token_.append(text); }

  void EndToken() override {
    const int byte = ByteTokenValue(token_);
    if (byte < 0) {
      Flush();
      next_->Piece(token_);
      next_->EndToken();
    } else {
      AddByte(static_cast<char>(byte));
    }
    token_.clear();
  }

  void Finish() override {
    Flush();
    next_->Finish();
  }

 private:
  // One invalid sequence spoils the whole run, so a valid one is certain only
  // at its end, and a spoilt one at once.
  void AddByte(char byte) {
    if (spoilt_) {
      Replacement();
      return;
    }
    run_.push_back(byte);
    while (checked_ < run_.size()) {
      const Utf8Step step = StepUtf8(run_, checked_);
      if (step.kind == Utf8Kind::kCut) break;
      if (step.kind == Utf8Kind::kInvalid) {
        Spoil();
        break;
      }
      checked_ += step.bytes;
    }
  }

  void Flush() {
    if (checked_ != run_.size()) Spoil();
    if (!run_.empty()) {
      next_->Piece(run_);
      next_->EndToken();
    }
    run_.clear();
    checked_ = 0;
    spoilt_ = false;
  }

  void Spoil() {
    for (size_t i = 0; i < run_.size(); ++i) Replacement();
    run_.clear();
    checked_ = 0;
    spoilt_ = true;
  }

  void Replacement() {
    next_->Piece(kReplacementUtf8);
    next_->EndToken();
  }

  TokenSink* const next_;
  std::string token_;
  std::string run_;     // bytes of the run so far, unless spoilt
  size_t checked_ = 0;  // of run_: whole valid characters
  bool spoilt_ = false;
};

class ByteFallbackStage final : public DecodeStage {
 public:
  std::unique_ptr<TokenSink> Start(TokenSink* next) const override {
    return std::make_unique<ByteFallbackSink>(next);
  }
  std::string Single(std::string token) const override {
    const int byte = ByteTokenValue(token);
    return byte < 0 ? token : std::string(1, static_cast<char>(byte));
  }
};

}  // namespace

MadeStage MakeByteLevelStage() { return std::make_unique<ByteLevelStage>(); }

MadeStage MakeByteFallbackStage() {
  return std::make_unique<ByteFallbackStage>();
}

}  // namespace inlay
