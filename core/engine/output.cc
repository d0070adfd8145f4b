#include "core/engine/output.h"

#include <limits>
#include <utility>

namespace inlay {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

}  // namespace

OutputAssembler::OutputAssembler(const Tokenizer* tokenizer,
                                 StopMatcher matcher, bool holds_tokens,
                                 absl::Span<const int32_t> context)
    : tokenizer_(tokenizer),
      matcher_(std::move(matcher)),
      holds_tokens_(holds_tokens) {
  if (tokenizer_ == nullptr) return;
  DecodeOptions options;
  options.skip_special = true;
  stream_ = tokenizer_->StartDecode(options);
  std::string discarded;
  for (const int32_t id : context) stream_->Push(id, &discarded);
}

bool OutputAssembler::Push(const SampleResult& sample) {
  if (tokenizer_ == nullptr) {
    ready_.push_back(sample);
    return false;
  }
  std::string decoded;
  stream_->Push(sample.token, &decoded);
  decoded_bytes_ += decoded.size();
  // A token whose text is not out yet counts as reaching one byte further.
  held_.push_back({sample, decoded_bytes_ + (decoded.empty() ? 1 : 0)});
  Show(decoded);
  Release(holds_tokens_ ? shown_bytes_ : kNoLimit);
  return matched_stop_ >= 0;
}

void OutputAssembler::Show(std::string_view decoded) {
  const StopResult result = matcher_.Push(decoded);
  matched_stop_ = result.stop_index;
  shown_bytes_ += result.text.size();
  text_ += result.text;
}

void OutputAssembler::Release(uint64_t shown_end) {
  while (!held_.empty() && held_.front().end <= shown_end) {
    ready_.push_back(std::move(held_.front().sample));
    held_.pop_front();
  }
}

void OutputAssembler::Finish() {
  if (tokenizer_ == nullptr || matched_stop_ >= 0) return;
  std::string decoded;
  stream_->Finish(&decoded);
  Show(decoded);
  if (matched_stop_ < 0) text_ += matcher_.Finish();
  Release(matched_stop_ < 0 ? kNoLimit : shown_bytes_);
}

// A row of `width` entries: the token, then its likeliest alternatives, filled
// up with token -1 where the distribution has fewer.
void OutputAssembler::AppendLogprobs(const SampleResult& sample, size_t width,
                                     Event& event) {
  event.logprobs.push_back({sample.token, sample.logprob});
  for (size_t i = 0; i + 1 < width; ++i) {
    if (i < sample.top.size()) {
      event.logprobs.push_back({sample.top[i].token, sample.top[i].logprob});
    } else {
      event.logprobs.push_back({-1, -std::numeric_limits<float>::infinity()});
    }
  }
}

bool OutputAssembler::TakeInto(int32_t num_logprobs, Event& event) {
  if (ready_.empty() && text_.empty()) return false;
  event.text = std::move(text_);
  text_.clear();
  if (num_logprobs >= 0) event.top_logprobs = static_cast<size_t>(num_logprobs);
  for (const SampleResult& sample : ready_) {
    event.tokens.push_back(sample.token);
    if (num_logprobs >= 0) {
      AppendLogprobs(sample, event.top_logprobs + 1, event);
    }
    if (tokenizer_ != nullptr && !tokenizer_->IsSpecial(sample.token)) {
      event.bytes += tokenizer_->TokenBytes(sample.token);
    }
  }
  ready_.clear();
  return true;
}

}  // namespace inlay
