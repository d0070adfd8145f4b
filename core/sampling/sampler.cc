// The sampling pipeline; its order is README.md's.
#include "core/sampling/sampler.h"

#include <limits>
#include <utility>

#include "kernels/sample/logit_blocks.h"
#include "kernels/sample/sample_cpu.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

absl::Status CheckFinite(absl::Span<const float> logits,
                         const LogitBlocks& blocks) {
  if (!blocks.valid) {
    const int64_t at = FirstInvalidLogit(logits);
    return NumericError(FormattedString(
        "logits are not finite: logit %d of %d is %g, allowed are finite "
        "values and -inf",
        at, logits.size(), logits[at]));
  }
  if (blocks.max == -kInf) {
    return NumericError(FormattedString(
        "logits are not finite: all %d are -inf, allowed is at least one "
        "finite value",
        logits.size()));
  }
  return absl::OkStatus();
}

absl::Status NothingLeft(int64_t vocab_size) {
  return absl::InvalidArgumentError(FormattedString(
      "no token is left to sample: mask, bans and bias exclude all %d, "
      "allowed is at least one",
      vocab_size));
}

// The logits of the edits' tokens: once edited, the chosen token's raw
// log-probability would be lost.
std::vector<float> LogitsOf(absl::Span<const LogitEdit> edits,
                            absl::Span<const float> logits) {
  std::vector<float> raw;
  raw.reserve(edits.size());
  for (const LogitEdit& edit : edits) raw.push_back(logits[edit.token]);
  return raw;
}

float RawLogit(int32_t token, absl::Span<const LogitEdit> edits,
               absl::Span<const float> edited, absl::Span<const float> logits) {
  for (size_t i = 0; i < edits.size(); ++i) {
    if (edits[i].token == token) return edited[i];
  }
  return logits[token];
}

}  // namespace

Sampler::Sampler(SamplingParams params, int64_t vocab_size)
    : params_(std::move(params)),
      vocab_size_(vocab_size),
      fixed_edits_(FixedEdits(params_)),
      seen_(params_) {}

absl::StatusOr<Sampler> Sampler::Create(SamplingParams params,
                                        int64_t vocab_size) {
  INLAY_RETURN_IF_ERROR(Validate(params, vocab_size));
  return Sampler(std::move(params), vocab_size);
}

void Sampler::ObservePrompt(absl::Span<const int32_t> tokens) {
  for (int32_t token : tokens) seen_.Observe(token, /*generated=*/false);
}

void Sampler::Observe(int32_t token) {
  seen_.Observe(token, /*generated=*/true);
  ++num_generated_;
}

SampleOptions Sampler::Options() const {
  SampleOptions options;
  options.temperature = params_.temperature;
  options.top_k = params_.top_k;
  options.top_p = params_.top_p;
  options.min_p = params_.min_p;
  options.repetition_penalty = params_.repetition_penalty;
  options.frequency_penalty = params_.frequency_penalty;
  options.presence_penalty = params_.presence_penalty;
  options.seed = params_.seed;
  options.index = num_generated_;
  return options;
}

void Sampler::Reset() {
  seen_.Clear();
  num_generated_ = 0;
}

void Sampler::set_state(SamplerState state) {
  params_.seed = state.seed;
  num_generated_ = state.num_generated;
}

absl::StatusOr<SampleResult> Sampler::Sample(
    absl::Span<float> logits, absl::Span<const uint32_t> allowed) const {
  if (static_cast<int64_t>(logits.size()) != vocab_size_) {
    return absl::InvalidArgumentError(
        FormattedString("logits has %d values, allowed is the vocabulary's %d",
                        logits.size(), vocab_size_));
  }
  const size_t mask_words = (logits.size() + 31) / 32;
  if (!allowed.empty() && allowed.size() != mask_words) {
    return absl::InvalidArgumentError(
        FormattedString("the token mask has %d words, allowed is 0 or %d",
                        allowed.size(), mask_words));
  }
  LogitBlocks blocks = ScanLogits(logits);
  INLAY_RETURN_IF_ERROR(CheckFinite(logits, blocks));

  const SampleOptions options = Options();
  std::vector<LogitEdit> edits;
  AppendEdits(edits);
  SampleResult result;
  const bool wants_logprobs = params_.num_logprobs >= 0;
  LogNormalizer normalizer;
  std::vector<float> raw;
  if (wants_logprobs) {
    normalizer = LogNormalizerOf(logits, blocks);
    result.top = TopLogprobs(logits, blocks, normalizer, params_.num_logprobs);
    raw = LogitsOf(edits, logits);
  }

  MaskLogits(allowed, logits);
  ApplyEdits(options, edits, logits);
  if (!edits.empty() || !allowed.empty()) {
    blocks = ScanLogits(logits);
    if (blocks.max == -kInf) return NothingLeft(vocab_size_);
  }
  result.token = ChooseToken(options, blocks, logits);
  result.logprob =
      wants_logprobs
          ? normalizer.LogProb(RawLogit(result.token, edits, raw, logits))
          : kNan;
  return result;
}

}  // namespace inlay
