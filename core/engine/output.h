// OutputAssembler: turns a request's tokens into what may be shown: whole code
// points, never part of a stop string. Knows nothing of scheduling.
#ifndef INLAY_CORE_ENGINE_OUTPUT_H_
#define INLAY_CORE_ENGINE_OUTPUT_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "core/engine/event.h"
#include "core/sampling/sampler.h"
#include "core/sampling/stop_matcher.h"
#include "core/text/tokenizer.h"

namespace inlay {

// One a request; used by one thread at a time. `tokenizer` may be null (then
// there is no text) and must outlive it.
class OutputAssembler {
 public:
  // `context`: the tokens before the first generated one; their end decides
  // whether a leading space is shown. `holds_tokens`: the matcher has stop
  // strings, so tokens wait until their text is known not to be part of one.
  OutputAssembler(const Tokenizer* tokenizer, StopMatcher matcher,
                  bool holds_tokens, absl::Span<const int32_t> context);

  // Adds a sampled token that is part of the text. True when a stop string is
  // complete: nothing from its first byte on is ever shown.
  bool Push(const SampleResult& sample);
  // No more tokens come: what was held back is shown now.
  void Finish();

  // Index of the stop string that matched, or -1.
  int matched_stop() const { return matched_stop_; }

  // Moves what may be shown now into `event` (tokens, text, bytes, logprobs);
  // false when there is nothing. `num_logprobs`
  // as SamplingParams has it.
  bool TakeInto(int32_t num_logprobs, Event& event);

 private:
  // A token not shown yet. It may be once the text shown reaches `end`.
  struct Held {
    SampleResult sample;
    uint64_t end;
  };

  void Show(std::string_view decoded);
  void Release(uint64_t shown_end);
  static void AppendLogprobs(const SampleResult& sample, size_t width,
                             Event& event);

  const Tokenizer* tokenizer_;
  std::unique_ptr<DecodeStream> stream_;
  StopMatcher matcher_;
  bool holds_tokens_;  // only stop strings make tokens wait
  int matched_stop_ = -1;
  uint64_t decoded_bytes_ = 0;  // text that came out of stream_ so far
  uint64_t shown_bytes_ = 0;    // of these, released by matcher_
  std::deque<Held> held_;
  std::vector<SampleResult> ready_;
  std::string text_;
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_OUTPUT_H_
