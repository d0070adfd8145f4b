// The chain, and the table of types: from JSON to stages.
#include "core/text/text_decoder.h"

#include <algorithm>

#include "core/text/text_decoder_stages.h"
#include "core/text/tokenizer_spec.h"
#include "core/text/utf8.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kMaxStrip = 1 << 20;
// What a stage searches or inserts for each token.
constexpr size_t kMaxAffixBytes = 256;
constexpr size_t kMaxStages = 64;
// Replacements feed each other: a few that each multiply their text would
// outgrow any memory.
constexpr double kMaxGrowth = 64;

absl::StatusOr<std::string> ShortString(const Json& spec, std::string_view key,
                                        std::string_view fallback) {
  INLAY_ASSIGN_OR_RETURN(std::string text, JsonString(spec, key, fallback));
  if (text.size() > kMaxAffixBytes) {
    return absl::InvalidArgumentError(
        FormattedString("decoder: \"%s\" has %d bytes, at most %d allowed", key,
                        text.size(), kMaxAffixBytes));
  }
  return text;
}

absl::StatusOr<std::string> OneCharacter(const Json& spec, std::string_view key,
                                         std::string_view fallback) {
  INLAY_ASSIGN_OR_RETURN(std::string text, JsonString(spec, key, fallback));
  if (text.empty() || RuneAt(text, 0).bytes != text.size()) {
    return absl::InvalidArgumentError(
        FormattedString("decoder: \"%s\" has %d bytes, allowed: one character",
                        key, text.size()));
  }
  return text;
}

absl::StatusOr<MadeStage> ParseStrip(const Json& spec) {
  INLAY_ASSIGN_OR_RETURN(std::string content,
                         OneCharacter(spec, "content", " "));
  INLAY_ASSIGN_OR_RETURN(const int64_t start,
                         JsonInt(spec, "start", 0, 0, kMaxStrip));
  INLAY_ASSIGN_OR_RETURN(const int64_t stop,
                         JsonInt(spec, "stop", 0, 0, kMaxStrip));
  return MakeStripStage(std::move(content), static_cast<size_t>(start),
                        static_cast<size_t>(stop));
}

absl::StatusOr<MadeStage> ParseReplace(const Json& spec) {
  INLAY_ASSIGN_OR_RETURN(PatternSpec pattern, ParsePattern(spec));
  INLAY_ASSIGN_OR_RETURN(std::string content, ShortString(spec, "content", ""));
  if (pattern.is_regex) {
    INLAY_ASSIGN_OR_RETURN(auto matcher, MakeRegexMatcher(pattern.text));
    return MakeRegexReplaceStage(std::move(matcher), std::move(content));
  }
  if (pattern.text.empty() || pattern.text.size() > kMaxAffixBytes) {
    return absl::InvalidArgumentError(FormattedString(
        "decoder Replace: a pattern of %d bytes, allowed: 1 to %d",
        pattern.text.size(), kMaxAffixBytes));
  }
  return MakeReplaceStage(std::move(pattern.text), std::move(content));
}

absl::StatusOr<MadeStage> ParseMetaspace(const Json& spec) {
  INLAY_ASSIGN_OR_RETURN(std::string replacement,
                         OneCharacter(spec, "replacement", "\u2581"));
  INLAY_ASSIGN_OR_RETURN(const bool add_prefix,
                         JsonBool(spec, "add_prefix_space", true));
  INLAY_ASSIGN_OR_RETURN(
      const std::string scheme,
      JsonString(spec, "prepend_scheme", add_prefix ? "always" : "never"));
  return MakeMetaspaceStage(std::move(replacement), scheme != "never");
}

absl::StatusOr<MadeStage> ParseWordPiece(const Json& spec) {
  INLAY_ASSIGN_OR_RETURN(std::string prefix, ShortString(spec, "prefix", "##"));
  INLAY_ASSIGN_OR_RETURN(const bool cleanup, JsonBool(spec, "cleanup", true));
  return MakeWordPieceStage(std::move(prefix), cleanup);
}

absl::StatusOr<MadeStage> ParseBpe(const Json& spec) {
  INLAY_ASSIGN_OR_RETURN(std::string suffix,
                         ShortString(spec, "suffix", "</w>"));
  if (suffix.empty()) {
    return absl::InvalidArgumentError("BPEDecoder: \"suffix\" is empty");
  }
  return MakeBpeStage(std::move(suffix));
}

absl::StatusOr<MadeStage> ParseCtc(const Json& spec) {
  INLAY_ASSIGN_OR_RETURN(std::string pad,
                         ShortString(spec, "pad_token", "<pad>"));
  INLAY_ASSIGN_OR_RETURN(std::string delimiter,
                         ShortString(spec, "word_delimiter_token", "|"));
  INLAY_ASSIGN_OR_RETURN(const bool cleanup, JsonBool(spec, "cleanup", true));
  return MakeCtcStage(std::move(pad), std::move(delimiter), cleanup);
}

absl::StatusOr<MadeStage> ParseStage(const Json& spec,
                                     const std::string& type) {
  if (type == "ByteLevel") return MakeByteLevelStage();
  if (type == "ByteFallback") return MakeByteFallbackStage();
  if (type == "Fuse") return MakeFuseStage();
  if (type == "Strip") return ParseStrip(spec);
  if (type == "Replace") return ParseReplace(spec);
  if (type == "Metaspace") return ParseMetaspace(spec);
  if (type == "WordPiece") return ParseWordPiece(spec);
  if (type == "BPEDecoder") return ParseBpe(spec);
  if (type == "CTC") return ParseCtc(spec);
  return UnknownType(type, "decoder");
}

// By how much a stage can lengthen its text at most; only replacements matter.
double Growth(const Json& spec, const std::string& type) {
  const Json* content = JsonFind(spec, "content");
  if (type != "Replace" || content == nullptr || !content->is_string())
    return 1;
  const auto bytes =
      static_cast<double>(content->get_ref<const std::string&>().size());
  const Json* pattern = JsonFind(spec, "pattern");
  const Json* text =
      pattern == nullptr ? nullptr : JsonFind(*pattern, "String");
  // A regex may match the nothing between characters.
  if (text == nullptr || !text->is_string()) return 1 + bytes;
  const size_t needle = text->get_ref<const std::string&>().size();
  return std::max(1.0,
                  bytes / static_cast<double>(std::max<size_t>(needle, 1)));
}

}  // namespace

absl::StatusOr<TextDecoder> TextDecoder::Create(const Json& spec) {
  TextDecoder decoder;
  if (spec.is_null()) {
    decoder.stages_.push_back(MakeJoinStage());
  } else {
    INLAY_RETURN_IF_ERROR(decoder.Add(spec));
  }
  return decoder;
}

absl::Status TextDecoder::Add(const Json& spec) {
  const Json* decoders = JsonFind(spec, "decoders");
  if (decoders != nullptr && decoders->is_array()) {
    for (const Json& item : *decoders) INLAY_RETURN_IF_ERROR(Add(item));
    return absl::OkStatus();
  }
  INLAY_ASSIGN_OR_RETURN(const std::string type, SpecType(spec, "decoder"));
  if (stages_.size() == kMaxStages) {
    return absl::ResourceExhaustedError(
        FormattedString("decoder: more than %d stages", kMaxStages));
  }
  INLAY_ASSIGN_OR_RETURN(MadeStage stage, ParseStage(spec, type));
  growth_ *= Growth(spec, type);
  if (growth_ > kMaxGrowth) {
    return absl::ResourceExhaustedError(FormattedString(
        "decoder: its replacements can lengthen a text %g times, at most %g "
        "allowed",
        growth_, kMaxGrowth));
  }
  stages_.push_back(std::move(stage));
  return absl::OkStatus();
}

// The chain's end: joins what arrives.
struct TextDecoder::Stream::Output final : public TokenSink {
  explicit Output(std::string** text) : text(text) {}
  void Piece(std::string_view piece) override { (*text)->append(piece); }
  void EndToken() override {}
  void Finish() override {}
  std::string** text;  // where the present call appends
};

TextDecoder::Stream::Stream(const TextDecoder& decoder)
    : output_(std::make_unique<Output>(&text_)) {
  TokenSink* next = output_.get();
  for (auto stage = decoder.stages_.rbegin(); stage != decoder.stages_.rend();
       ++stage) {
    sinks_.push_back((*stage)->Start(next));
    next = sinks_.back().get();
  }
}

void TextDecoder::Stream::Push(std::string_view token, std::string* text) {
  text_ = text;
  TokenSink* first = sinks_.empty() ? output_.get() : sinks_.back().get();
  first->Piece(token);
  first->EndToken();
}

void TextDecoder::Stream::Finish(std::string* text) {
  text_ = text;
  (sinks_.empty() ? output_.get() : sinks_.back().get())->Finish();
}

std::unique_ptr<TextDecoder::Stream> TextDecoder::Start() const {
  return std::unique_ptr<Stream>(new Stream(*this));
}

std::string TextDecoder::Single(std::string_view token) const {
  std::string text(token);
  for (const auto& stage : stages_) text = stage->Single(std::move(text));
  return text;
}

}  // namespace inlay
