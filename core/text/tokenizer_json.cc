// The way there and back; the file's reading is tokenizer_json_load.cc.
#include "core/text/tokenizer_json.h"

#include <algorithm>

#include "core/text/utf8.h"
#include "core/text/word_cut.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

// One call's way through the pipeline, with what its segments share.
class JsonTokenizer::Encoder {
 public:
  Encoder(const JsonTokenizer& tokenizer, std::string_view text,
          const EncodeOptions& options, std::vector<int32_t>* ids)
      : tokenizer_(tokenizer),
        text_(text),
        parse_special_(options.parse_special),
        max_ids_(options.max_ids),
        ids_(ids),
        bpe_scratch_(tokenizer.bpe_ == nullptr ? 0 : text.size()),
        normalized_left_(text.size() * kNormalizedGrowth + kNormalizedBase) {
    bpe_scratch_.max_ids = options.max_ids;
  }

  absl::Status Run() {
    std::vector<TextSegment> segments;
    Split(text_, /*normalized=*/false, &segments);
    for (const TextSegment& segment : segments) {
      if (segment.id >= 0) {
        ids_->push_back(segment.id);
      } else {
        INLAY_RETURN_IF_ERROR(EncodeParts(segment.text));
      }
    }
    return CheckCount();
  }

 private:
  // Of a part and what it becomes on its way much stays in the second-level
  // cache; shorter ones would cost more than they save.
  static constexpr size_t kPartBytes = size_t{32} << 10;

  absl::Status CheckCount() const {
    if (ids_->size() <= max_ids_ && !bpe_scratch_.over) return absl::OkStatus();
    return absl::OutOfRangeError(FormattedString(
        "tokenizer: the text of %d bytes has more than %d tokens", text_.size(),
        max_ids_));
  }

  // A stretch without added tokens of raw text.
  absl::Status EncodeParts(std::string_view raw) {
    if (!tokenizer_.cuts_at_words_) return EncodeRaw(raw);
    for (size_t begin = 0; begin < raw.size();) {
      size_t end = raw.size();
      if (end - begin > kPartBytes) end = NextWordCut(raw, begin + kPartBytes);
      INLAY_RETURN_IF_ERROR(EncodeRaw(raw.substr(begin, end - begin)));
      begin = end;
    }
    return absl::OkStatus();
  }

  void Split(std::string_view text, bool normalized,
             std::vector<TextSegment>* segments) const {
    if (parse_special_ && !tokenizer_.added_.empty(normalized)) {
      tokenizer_.added_.Split(text, normalized, segments);
    } else if (!text.empty()) {
      segments->push_back({text});
    }
  }

  // All of it or a part.
  absl::Status EncodeRaw(std::string_view raw) {
    const bool at_start = raw.data() == text_.data();
    std::string storage;
    std::string_view text = raw;
    if (tokenizer_.normalizer_ != nullptr) {
      storage.assign(raw);
      INLAY_RETURN_IF_ERROR(tokenizer_.normalizer_->Apply(&storage));
      if (storage.size() > normalized_left_) {
        return absl::ResourceExhaustedError(FormattedString(
            "normalizer: a text of %d bytes grew more than %d times",
            text_.size(), kNormalizedGrowth));
      }
      normalized_left_ -= storage.size();
      text = storage;
    }
    std::vector<TextSegment> segments;
    Split(text, /*normalized=*/true, &segments);
    for (const TextSegment& segment : segments) {
      if (segment.id >= 0) {
        ids_->push_back(segment.id);
      } else {
        INLAY_RETURN_IF_ERROR(EncodeNormalized(
            segment.text, at_start && segment.text.data() == text.data()));
      }
    }
    return absl::OkStatus();
  }

  absl::Status EncodeNormalized(std::string_view text, bool at_start) {
    pieces_.Reset(text, at_start);
    INLAY_RETURN_IF_ERROR(tokenizer_.pre_tokenizer_->Apply(&pieces_));
    if (tokenizer_.bpe_ != nullptr) {
      for (size_t i = 0; i < pieces_.size() && ids_->size() <= max_ids_; ++i) {
        tokenizer_.bpe_->EncodePiece(pieces_[i], &bpe_scratch_, ids_);
      }
      return CheckCount();
    }
    for (size_t i = 0; i < pieces_.size() && ids_->size() <= max_ids_; ++i) {
      INLAY_RETURN_IF_ERROR(tokenizer_.model_->Encode(pieces_[i], ids_));
    }
    return CheckCount();
  }

  const JsonTokenizer& tokenizer_;
  const std::string_view text_;
  const bool parse_special_;
  const size_t max_ids_;
  std::vector<int32_t>* const ids_;
  BpeModel::Scratch bpe_scratch_;
  Pieces pieces_;
  size_t normalized_left_;  // bytes that normalisers may still produce
};

class JsonTokenizer::Stream final : public DecodeStream {
 public:
  Stream(const JsonTokenizer& tokenizer, const DecodeOptions& options)
      : tokenizer_(tokenizer),
        skip_special_(options.skip_special),
        stream_(tokenizer.decoder_->Start()) {}

  void Push(int32_t id, std::string* text) override {
    if (skip_special_ && tokenizer_.IsSpecial(id)) return;
    const std::string_view token = tokenizer_.IdToToken(id);
    if (!token.empty()) stream_->Push(token, text);
  }
  void Finish(std::string* text) override { stream_->Finish(text); }

 private:
  const JsonTokenizer& tokenizer_;
  const bool skip_special_;
  const std::unique_ptr<TextDecoder::Stream> stream_;
};

absl::Status JsonTokenizer::EncodeText(std::string_view text,
                                       const EncodeOptions& options,
                                       std::vector<int32_t>* ids) const {
  constexpr size_t kMaxTextBytes = size_t{1} << 30;
  if (text.size() > kMaxTextBytes) {
    return absl::ResourceExhaustedError(
        FormattedString("tokenizer: a text of %d bytes, at most %d allowed",
                        text.size(), kMaxTextBytes));
  }
  if (IsValidUtf8(text)) return Encoder(*this, text, options, ids).Run();
  std::string repaired;
  AppendValidUtf8(text, &repaired);
  return Encoder(*this, repaired, options, ids).Run();
}

absl::Status JsonTokenizer::Encode(std::string_view text,
                                   const EncodeOptions& options,
                                   std::vector<int32_t>* ids) const {
  std::vector<int32_t> encoded;
  INLAY_RETURN_IF_ERROR(EncodeText(text, options, &encoded));
  if (options.add_special) {
    ApplyTemplate(post_.single, true, encoded, {}, ids);
  } else {
    ids->insert(ids->end(), encoded.begin(), encoded.end());
  }
  return absl::OkStatus();
}

absl::Status JsonTokenizer::EncodePair(std::string_view a, std::string_view b,
                                       const EncodeOptions& options,
                                       std::vector<int32_t>* ids,
                                       std::vector<int32_t>* types) const {
  std::vector<int32_t> first;
  std::vector<int32_t> second;
  INLAY_RETURN_IF_ERROR(EncodeText(a, options, &first));
  INLAY_RETURN_IF_ERROR(EncodeText(b, options, &second));
  ApplyTemplate(post_.pair, options.add_special, first, second, ids, types);
  return absl::OkStatus();
}

std::unique_ptr<DecodeStream> JsonTokenizer::StartDecode(
    const DecodeOptions& options) const {
  return std::make_unique<Stream>(*this, options);
}

int32_t JsonTokenizer::vocab_size() const {
  return std::max(model_->vocab_size(), added_.id_limit());
}

std::optional<int32_t> JsonTokenizer::TokenToId(std::string_view token) const {
  if (const auto id = added_.TokenToId(token)) return id;
  return model_->TokenToId(token);
}

std::string_view JsonTokenizer::IdToToken(int32_t id) const {
  const AddedToken* token = added_.Find(id);
  return token == nullptr ? model_->IdToToken(id)
                          : std::string_view(token->content);
}

bool JsonTokenizer::IsSpecial(int32_t id) const {
  const AddedToken* token = added_.Find(id);
  return token != nullptr && token->special;
}

std::string JsonTokenizer::TokenBytes(int32_t id) const {
  const std::string_view token = IdToToken(id);
  return token.empty() ? std::string() : decoder_->Single(token);
}

}  // namespace inlay
