// The options of one generation and their validation. Plain data: knows nothing
// of models, sessions or random numbers.
#ifndef INLAY_CORE_SAMPLING_SAMPLING_PARAMS_H_
#define INLAY_CORE_SAMPLING_SAMPLING_PARAMS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace inlay {

inline constexpr float kMaxTemperature = 1000;
inline constexpr float kMinRepetitionPenalty = 1e-3f;
inline constexpr float kMaxRepetitionPenalty = 1e3f;
inline constexpr float kMaxAdditivePenalty = 1e3f;  // either sign
inline constexpr int32_t kMaxLogprobs = 1024;

// Applied in the order of README.md: bias, penalties, bans, temperature, top-k,
// top-p, min-p.
struct SamplingParams {
  // 0 = greedy (top_k, top_p, min_p and seed are then without effect).
  float temperature = 0;
  // The `top_k` likeliest tokens stay, ties go to the lower id; 0 = off.
  int32_t top_k = 0;
  // The fewest likeliest tokens whose mass among those left by top_k reaches
  // `top_p` stay (at least one, so 0 keeps one); 1 = off. In [0, 1].
  float top_p = 1;
  // Tokens of at least `min_p` times the likeliest one's probability stay; 0 =
  // off. In [0, 1].
  float min_p = 0;

  // Divides positive logits and multiplies negative ones of tokens that occur
  // in the prompt or the generated text (CTRL, arXiv:1909.05858); 1 = off.
  float repetition_penalty = 1;
  // Subtracted once for each time (frequency) or once at all (presence) that
  // the token was generated; the prompt does not count. 0 = off.
  float frequency_penalty = 0;
  float presence_penalty = 0;
  // The penalties see only the last n tokens of prompt and generated text
  // together; -1 = all of them, 0 = none.
  int32_t penalty_last_n = -1;

  // Added to the token's logit; several entries for one token add up. Finite:
  // a ban belongs into banned_tokens.
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<int32_t> banned_tokens;  // never sampled

  uint64_t seed = 0;
  // -1 = none are computed; n >= 0: the sampled token's log-probability and
  // those of the n likeliest tokens.
  int32_t num_logprobs = -1;
};

// INVALID_ARGUMENT names the first option that is out of range, its value and
// what is allowed. `vocab_size` is the number of logits of a position.
absl::Status Validate(const SamplingParams& params, int64_t vocab_size);

}  // namespace inlay

#endif  // INLAY_CORE_SAMPLING_SAMPLING_PARAMS_H_
