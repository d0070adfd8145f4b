// Chooses a request's next token from the logits of its last position. Owns the
// options, the counts of the tokens seen and the index of the next draw; must
// not know models, text or batches. The choice itself is kernels/sample's, so
// that devices make the same.
#ifndef INLAY_CORE_SAMPLING_SAMPLER_H_
#define INLAY_CORE_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/sampling/log_softmax.h"
#include "core/sampling/penalties.h"
#include "core/sampling/sampling_params.h"
#include "kernels/sample/sample.h"

namespace inlay {

struct SampleResult {
  int32_t token = 0;
  // Of the raw model distribution: log-softmax of the logits as given, before
  // mask, bias, penalties and temperature. NaN where num_logprobs is -1.
  float logprob = 0;
  // The num_logprobs likeliest tokens of the same distribution, likeliest
  // first, ties by lower id; tokens of probability 0 are left out.
  std::vector<TokenLogprob> top;
};

// All that a snapshot needs besides the token log, which restores the counts by
// being observed again.
struct SamplerState {
  uint64_t seed = 0;
  uint64_t num_generated = 0;  // the index of the next draw
};

// One a request; movable. Not thread-safe, but Sample is const: it changes
// nothing until its token is observed, so a step that fails after sampling can
// be run again and chooses the same token.
class Sampler {
 public:
  // INVALID_ARGUMENT as Validate.
  static absl::StatusOr<Sampler> Create(SamplingParams params,
                                        int64_t vocab_size);

  // Feeds tokens that the request starts from; to be called before Observe.
  void ObservePrompt(absl::Span<const int32_t> tokens);

  // Feeds a generated token (sampled or forced) and advances to the next draw.
  void Observe(int32_t token);

  // logits: [vocab_size], scratch: may be modified. allowed: empty = every
  // token, else a bit a token in ceil(vocab_size / 32) words (bit i % 32 of
  // word i / 32; 0 forbids it), as a grammar gives. The token depends only on
  // options, tokens observed, logits and mask; the random number only on seed
  // and index (philox.h). INVALID_ARGUMENT: a span of the wrong length.
  // FAILED_PRECONDITION: a logit is NaN or +inf, all are -inf, or mask and bans
  // leave no token; each is the fault of this request only.
  absl::StatusOr<SampleResult> Sample(
      absl::Span<float> logits, absl::Span<const uint32_t> allowed = {}) const;

  // What a device that samples needs of it: the options with the index of the
  // next draw, without edits or mask ...
  SampleOptions Options() const;
  // ... and the edits, appended. The token is that of Sample without a mask.
  void AppendEdits(std::vector<LogitEdit>& out) const {
    seen_.AppendEdits(fixed_edits_, vocab_size_, out);
  }

  // Whether the edits depend on the tokens observed.
  bool remembers() const { return seen_.counts(); }

  // Back to nothing observed; rewinding is Reset and observing what remains.
  void Reset();

  SamplerState state() const { return {params_.seed, num_generated_}; }
  // Leaves the counts alone: to restore, observe the token log, then set.
  void set_state(SamplerState state);

  const SamplingParams& params() const { return params_; }

 private:
  Sampler(SamplingParams params, int64_t vocab_size);

  SamplingParams params_;
  int64_t vocab_size_;
  std::vector<LogitEdit> fixed_edits_;
  SeenTokens seen_;
  uint64_t num_generated_ = 0;
};

}  // namespace inlay

#endif  // INLAY_CORE_SAMPLING_SAMPLER_H_
