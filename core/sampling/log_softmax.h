// Log-probabilities of the raw model distribution (log-softmax of the logits as
// the model gave them: no temperature, bias, penalty or truncation).
#ifndef INLAY_CORE_SAMPLING_LOG_SOFTMAX_H_
#define INLAY_CORE_SAMPLING_LOG_SOFTMAX_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/sample/logit_blocks.h"

namespace inlay {

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;  // natural logarithm
};

// log(sum(exp(logits))) in two parts: their sum would round the second away
// where the logits are huge.
struct LogNormalizer {
  float max = 0;
  double log_mass = 0;  // log(sum(exp(logits - max)))

  float LogProb(float logit) const {
    return static_cast<float>((double{logit} - max) - log_mass);
  }
};

// `blocks` is that of `logits`, valid, max not -inf.
LogNormalizer LogNormalizerOf(absl::Span<const float> logits,
                              const LogitBlocks& blocks);

// The `count` likeliest tokens, likeliest first, ties by lower id. Tokens of
// probability 0 (logit -inf) are left out, so there may be fewer.
std::vector<TokenLogprob> TopLogprobs(absl::Span<const float> logits,
                                      const LogitBlocks& blocks,
                                      LogNormalizer normalizer, int32_t count);

// log softmax(logits)[token], for scoring a prompt; -inf where its logit is
// -inf. NaN where there is no answer: a token outside the vocabulary, a NaN or
// +inf among the logits, or all of them -inf.
float LogProbOf(absl::Span<const float> logits, int32_t token);

}  // namespace inlay

#endif  // INLAY_CORE_SAMPLING_LOG_SOFTMAX_H_
