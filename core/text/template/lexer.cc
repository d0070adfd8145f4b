#include "core/text/template/lexer.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "core/text/template/literals.h"
#include "core/text/template/unicode.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

constexpr size_t kMaxTokens = 200'000;

// Line ends become "\n", and one at the very end is dropped, as Jinja does.
std::string NormalizeLines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (pos_ < source_.size()) INLAY_RETURN_IF_ERROR(LexText());
    INLAY_RETURN_IF_ERROR(Push(TokenType::kEnd, ""));
    return std::move(tokens_);
  }

 private:
  absl::Status LexText();
  absl::Status LexComment();
  absl::Status LexRaw(size_t tag);
  absl::Status LexTag(bool block);
  absl::Status LexToken();
  absl::Status LexNumber();
  absl::Status LexString();
  absl::Status LexOperator();
  bool AtTagEnd(bool block, size_t& end) const;
  size_t RawBodyBegin(size_t tag) const;
  std::string_view StripBeforeTag(std::string_view text, size_t tag,
                                  bool variable) const;
  size_t SkipSpace(size_t pos) const;

  bool At(size_t pos, std::string_view text) const {
    return std::string_view(source_)
        .substr(std::min(pos, source_.size()))
        .starts_with(text);
  }
  absl::Status Error(std::string_view what) const {
    return absl::InvalidArgumentError(
        FormattedString("line %d: %s", line_, what));
  }
  absl::Status Push(TokenType type, std::string text) {
    if (tokens_.size() >= kMaxTokens) {
      return absl::ResourceExhaustedError(FormattedString(
          "line %d: more than the %d tokens allowed", line_, kMaxTokens));
    }
    tokens_.push_back({type, line_, std::move(text)});
    return absl::OkStatus();
  }
  void MoveTo(size_t pos) {
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<ptrdiff_t>(pos_),
                   source_.begin() + static_cast<ptrdiff_t>(pos), '\n'));
    pos_ = pos;
  }

  const std::string source_;
  size_t pos_ = 0;
  int line_ = 1;
  // Whether what was lexed last ended a line: then whitespace before a tag may
  // be indentation.
  bool line_starting_ = true;
  std::string brackets_;  // the closing ones still expected in this tag
  std::vector<Token> tokens_;
};

size_t Lexer::SkipSpace(size_t pos) const {
  while (pos < source_.size()) {
    size_t next = pos;
    if (!IsSpace(NextChar(source_, next))) break;
    pos = next;
  }
  return pos;
}

// The text in front of a tag, after the tag's own strip sign or, without one,
// the removal of a block tag's indentation.
std::string_view Lexer::StripBeforeTag(std::string_view text, size_t tag,
                                       bool variable) const {
  const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
  if (sign == '-') return Strip(text, Ends::kRight);
  if (sign == '+' || variable) return text;
  const size_t newline = text.rfind('\n');
  const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
  if (line_begin == 0 && !line_starting_) return text;
  if (!Strip(text.substr(line_begin), Ends::kBoth).empty()) return text;
  return text.substr(0, line_begin);
}

absl::Status Lexer::LexText() {
  size_t tag = pos_;
  while (true) {
    tag = source_.find('{', tag);
    if (tag == std::string::npos || tag + 1 >= source_.size()) {
      tag = source_.size();
      break;
    }
    const char c = source_[tag + 1];
    if (c == '{' || c == '%' || c == '#') break;
    ++tag;
  }
  std::string_view text(source_.data() + pos_, tag - pos_);
  if (tag == source_.size()) {
    INLAY_RETURN_IF_ERROR(Push(TokenType::kText, std::string(text)));
    MoveTo(tag);
    return absl::OkStatus();
  }
  const char kind = source_[tag + 1];
  text = StripBeforeTag(text, tag, kind == '{');
  if (!text.empty()) {
    INLAY_RETURN_IF_ERROR(Push(TokenType::kText, std::string(text)));
  }
  MoveTo(tag);
  line_starting_ = false;
  if (kind == '#') return LexComment();
  if (kind == '%' && RawBodyBegin(tag) != 0) return LexRaw(tag);
  return LexTag(kind == '%');
}

absl::Status Lexer::LexComment() {
  const size_t sign = At(pos_ + 2, "-") || At(pos_ + 2, "+") ? 1 : 0;
  const size_t close = source_.find("#}", pos_ + 2 + sign);
  if (close == std::string::npos) return Error("this comment never ends");
  size_t end = close + 2;
  const char before = close > pos_ + 2 + sign ? source_[close - 1] : ' ';
  if (before == '-') {
    end = SkipSpace(end);
  } else if (before != '+' && At(end, "\n")) {
    ++end;
  }
  MoveTo(end);
  line_starting_ = source_[end - 1] == '\n';
  return absl::OkStatus();
}

// Where the body of the raw block that begins at `tag` begins; 0 when the tag
// is another one.
size_t Lexer::RawBodyBegin(size_t tag) const {
  size_t pos = tag + 2;
  if (At(pos, "-") || At(pos, "+")) ++pos;
  pos = SkipSpace(pos);
  if (!At(pos, "raw")) return 0;
  pos = SkipSpace(pos + 3);
  if (At(pos, "-%}")) return SkipSpace(pos + 3);
  return At(pos, "%}") ? pos + 2 : 0;
}

absl::Status Lexer::LexRaw(size_t tag) {
  const size_t body = RawBodyBegin(tag);
  MoveTo(body);
  line_starting_ = source_[body - 1] == '\n';
  for (size_t end_tag = source_.find("{%", body); end_tag != std::string::npos;
       end_tag = source_.find("{%", end_tag + 1)) {
    size_t pos = end_tag + 2;
    if (At(pos, "-") || At(pos, "+")) ++pos;
    pos = SkipSpace(pos);
    if (!At(pos, "endraw")) continue;
    pos = SkipSpace(pos + 6);
    const bool strips = At(pos, "-%}");
    const bool keeps = At(pos, "+%}");
    if (!strips && !keeps && !At(pos, "%}")) continue;
    pos += strips || keeps ? 3 : 2;
    if (strips) {
      pos = SkipSpace(pos);
    } else if (!keeps && At(pos, "\n")) {
      ++pos;
    }
    const std::string_view text = StripBeforeTag(
        std::string_view(source_).substr(body, end_tag - body), end_tag, false);
    INLAY_RETURN_IF_ERROR(Push(TokenType::kText, std::string(text)));
    MoveTo(pos);
    line_starting_ = source_[pos - 1] == '\n';
    return absl::OkStatus();
  }
  return Error("this raw block never ends");
}

bool Lexer::AtTagEnd(bool block, size_t& end) const {
  const std::string_view close = block ? "%}" : "}}";
  if (At(pos_, "-") && At(pos_ + 1, close)) {
    end = SkipSpace(pos_ + 3);
    return true;
  }
  if (block && At(pos_, "+") && At(pos_ + 1, close)) {
    end = pos_ + 3;
    return true;
  }
  if (!At(pos_, close)) return false;
  end = pos_ + 2;
  if (block && At(end, "\n")) ++end;
  return true;
}

absl::Status Lexer::LexTag(bool block) {
  INLAY_RETURN_IF_ERROR(
      Push(block ? TokenType::kBlockBegin : TokenType::kVariableBegin, ""));
  size_t pos = pos_ + 2;
  if (At(pos, "-") || At(pos, "+")) ++pos;
  MoveTo(pos);
  brackets_.clear();
  while (true) {
    size_t end = 0;
    // Inside brackets "}}" closes dictionaries.
    if (brackets_.empty() && AtTagEnd(block, end)) {
      INLAY_RETURN_IF_ERROR(
          Push(block ? TokenType::kBlockEnd : TokenType::kVariableEnd, ""));
      MoveTo(end);
      line_starting_ = source_[end - 1] == '\n';
      return absl::OkStatus();
    }
    if (pos_ >= source_.size()) return Error("this tag never ends");
    const size_t next = SkipSpace(pos_);
    if (next != pos_) {
      MoveTo(next);
    } else {
      INLAY_RETURN_IF_ERROR(LexToken());
    }
  }
}

absl::Status Lexer::LexToken() {
  const char c = source_[pos_];
  if (c >= '0' && c <= '9') return LexNumber();
  if (c == '\'' || c == '"') return LexString();
  size_t next = pos_;
  if (!IsIdentifierStart(NextChar(source_, next))) return LexOperator();
  size_t end = next;
  while (next < source_.size() && IsIdentifierPart(NextChar(source_, next))) {
    end = next;
  }
  INLAY_RETURN_IF_ERROR(
      Push(TokenType::kName, source_.substr(pos_, end - pos_)));
  MoveTo(end);
  return absl::OkStatus();
}

absl::Status Lexer::LexNumber() {
  // "a.1.2" indexes twice: digits behind a dot are never a float.
  const bool after_dot = pos_ > 0 && source_[pos_ - 1] == '.';
  NumberLiteral number;
  absl::Status status = ScanNumber(source_, pos_, !after_dot, number);
  if (!status.ok()) return Error(std::string(status.message()));
  INLAY_RETURN_IF_ERROR(
      Push(number.is_float ? TokenType::kFloat : TokenType::kInteger,
           source_.substr(pos_, number.end - pos_)));
  tokens_.back().integer = number.integer;
  tokens_.back().real = number.real;
  MoveTo(number.end);
  return absl::OkStatus();
}

absl::Status Lexer::LexString() {
  const char quote = source_[pos_];
  size_t end = pos_ + 1;
  while (end < source_.size() && source_[end] != quote) {
    end += source_[end] == '\\' ? 2 : 1;
  }
  if (end >= source_.size()) return Error("this string never ends");
  const std::string_view body =
      std::string_view(source_).substr(pos_ + 1, end - pos_ - 1);
  absl::StatusOr<std::string> text = Unescape(body);
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        Error(std::string(text.status().message())).message());
  }
  INLAY_RETURN_IF_ERROR(Push(TokenType::kString, *std::move(text)));
  MoveTo(end + 1);
  return absl::OkStatus();
}

absl::Status Lexer::LexOperator() {
  constexpr std::string_view kOperators[] = {
      "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
      "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
  for (const std::string_view op : kOperators) {
    if (!At(pos_, op)) continue;
    if (op == "(" || op == "[" || op == "{") {
      brackets_.push_back(op == "(" ? ')' : op == "[" ? ']' : '}');
    } else if (op == ")" || op == "]" || op == "}") {
      if (brackets_.empty() || brackets_.back() != op[0]) {
        return Error(FormattedString("unexpected '%s'", op));
      }
      brackets_.pop_back();
    }
    INLAY_RETURN_IF_ERROR(Push(TokenType::kOperator, std::string(op)));
    MoveTo(pos_ + op.size());
    return absl::OkStatus();
  }
  size_t next = pos_;
  NextChar(source_, next);
  return Error(FormattedString("unexpected character '%s'",
                               source_.substr(pos_, next - pos_)));
}

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source,
                                            const TemplateLimits& limits) {
  if (source.size() > limits.max_template_bytes) {
    return absl::ResourceExhaustedError(
        FormattedString("a template of %d bytes, at most %d allowed",
                        source.size(), limits.max_template_bytes));
  }
  if (!IsValidUtf8(source)) {
    return absl::InvalidArgumentError("the template is not valid UTF-8");
  }
  return Lexer(NormalizeLines(source)).Run();
}

}  // namespace inlay::tmpl
