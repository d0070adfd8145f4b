// Validation of sampling options: every range in one place.
#include "core/sampling/sampling_params.h"

#include <cmath>
#include <limits>

#include "kernels/sample/sample.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Written so that NaN is refused: it is inside no range.
absl::Status CheckRange(const char* name, double got, double low, double high) {
  if (got >= low && got <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      FormattedString("%s is %g, allowed is %g to %g", name, got, low, high));
}

absl::Status CheckInteger(const char* name, int64_t got, int64_t low,
                          int64_t high) {
  if (got >= low && got <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      FormattedString("%s is %d, allowed is %d to %d", name, got, low, high));
}

absl::Status CheckToken(const char* name, size_t entry, int32_t token,
                        int64_t vocab_size) {
  if (token >= 0 && token < vocab_size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      FormattedString("%s[%d] names token %d, allowed is 0 to %d", name, entry,
                      token, vocab_size - 1));
}

absl::Status CheckCount(const char* name, size_t got, int64_t vocab_size) {
  if (got <= static_cast<uint64_t>(vocab_size)) return absl::OkStatus();
  return absl::InvalidArgumentError(FormattedString(
      "%s has %d entries, allowed are at most the %d tokens of the vocabulary",
      name, got, vocab_size));
}

absl::Status CheckTokenLists(const SamplingParams& params, int64_t vocab_size) {
  INLAY_RETURN_IF_ERROR(
      CheckCount("logit_bias", params.logit_bias.size(), vocab_size));
  INLAY_RETURN_IF_ERROR(
      CheckCount("banned_tokens", params.banned_tokens.size(), vocab_size));
  for (size_t i = 0; i < params.logit_bias.size(); ++i) {
    const auto& [token, bias] = params.logit_bias[i];
    INLAY_RETURN_IF_ERROR(CheckToken("logit_bias", i, token, vocab_size));
    if (!std::isfinite(bias)) {
      return absl::InvalidArgumentError(FormattedString(
          "logit_bias[%d] is %g for token %d, allowed are finite values "
          "(banned_tokens bans a token)",
          i, bias, token));
    }
  }
  for (size_t i = 0; i < params.banned_tokens.size(); ++i) {
    INLAY_RETURN_IF_ERROR(
        CheckToken("banned_tokens", i, params.banned_tokens[i], vocab_size));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const SamplingParams& params, int64_t vocab_size) {
  constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
  INLAY_RETURN_IF_ERROR(
      CheckInteger("vocab_size", vocab_size, 1, kMostSampledVocab));
  INLAY_RETURN_IF_ERROR(
      CheckRange("temperature", params.temperature, 0, kMaxTemperature));
  INLAY_RETURN_IF_ERROR(CheckInteger("top_k", params.top_k, 0, kMaxInt));
  INLAY_RETURN_IF_ERROR(CheckRange("top_p", params.top_p, 0, 1));
  INLAY_RETURN_IF_ERROR(CheckRange("min_p", params.min_p, 0, 1));
  INLAY_RETURN_IF_ERROR(
      CheckRange("repetition_penalty", params.repetition_penalty,
                 kMinRepetitionPenalty, kMaxRepetitionPenalty));
  INLAY_RETURN_IF_ERROR(CheckRange("frequency_penalty",
                                   params.frequency_penalty,
                                   -kMaxAdditivePenalty, kMaxAdditivePenalty));
  INLAY_RETURN_IF_ERROR(CheckRange("presence_penalty", params.presence_penalty,
                                   -kMaxAdditivePenalty, kMaxAdditivePenalty));
  INLAY_RETURN_IF_ERROR(
      CheckInteger("penalty_last_n", params.penalty_last_n, -1, kMaxInt));
  INLAY_RETURN_IF_ERROR(
      CheckInteger("num_logprobs", params.num_logprobs, -1, kMaxLogprobs));
  return CheckTokenLists(params, vocab_size);
}

}  // namespace inlay
