// The sampling pipeline; its order is README.md's.
#include "core/sampling/sampler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/sampling/philox.h"
#include "core/sampling/truncation.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using TokenLogits = std::vector<std::pair<int32_t, float>>;

absl::Status CheckFinite(absl::Span<const float> logits,
                         const LogitBlocks& blocks) {
  if (!blocks.valid) {
    const int64_t at = FirstInvalidLogit(logits);
    return NumericError(absl::StrFormat(
        "logits are not finite: logit %d of %d is %g, allowed are finite "
        "values and -inf",
        at, logits.size(), logits[at]));
  }
  if (blocks.max == -kInf) {
    return NumericError(absl::StrFormat(
        "logits are not finite: all %d are -inf, allowed is at least one "
        "finite value",
        logits.size()));
  }
  return absl::OkStatus();
}

// The raw logits of the tokens that options may change: without them the
// chosen token's raw log-probability would be lost.
TokenLogits ChangeableLogits(const SamplingParams& params,
                             const SeenTokens& seen,
                             absl::Span<const float> logits) {
  TokenLogits raw;
  for (const auto& [token, bias] : params.logit_bias) {
    raw.emplace_back(token, logits[token]);
  }
  seen.AppendLogits(logits, raw);
  return raw;
}

float RawLogit(int32_t token, const TokenLogits& changeable,
               absl::Span<const float> logits) {
  const auto it =
      std::find_if(changeable.begin(), changeable.end(),
                   [token](const auto& entry) { return entry.first == token; });
  return it != changeable.end() ? it->second : logits[token];
}

}  // namespace

Sampler::Sampler(SamplingParams params, int64_t vocab_size)
    : params_(std::move(params)), vocab_size_(vocab_size), seen_(params_) {}

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
        absl::StrFormat("logits has %d values, allowed is the vocabulary's %d",
                        logits.size(), vocab_size_));
  }
  const size_t mask_words = (logits.size() + 31) / 32;
  if (!allowed.empty() && allowed.size() != mask_words) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the token mask has %d words, allowed is 0 or %d",
                        allowed.size(), mask_words));
  }
  LogitBlocks blocks = ScanLogits(logits);
  INLAY_RETURN_IF_ERROR(CheckFinite(logits, blocks));

  SampleResult result;
  const bool wants_logprobs = params_.num_logprobs >= 0;
  LogNormalizer normalizer;
  TokenLogits changeable;
  if (wants_logprobs) {
    normalizer = LogNormalizerOf(logits, blocks);
    result.top = TopLogprobs(logits, blocks, normalizer, params_.num_logprobs);
    changeable = ChangeableLogits(params_, seen_, logits);
  }

  MaskLogits(allowed, logits);
  if (AdjustLogits(params_, seen_, logits) || !allowed.empty()) {
    blocks = ScanLogits(logits);
    if (blocks.max == -kInf) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "no token is left to sample: mask, bans and bias exclude all %d, "
          "allowed is at least one",
          logits.size()));
    }
  }
  result.token =
      params_.temperature == 0 ? ArgMax(logits, blocks) : Draw(logits, blocks);
  result.logprob =
      wants_logprobs
          ? normalizer.LogProb(RawLogit(result.token, changeable, logits))
          : kNan;
  return result;
}

int32_t Sampler::Draw(absl::Span<float> logits,
                      const LogitBlocks& blocks) const {
  // A subnormal temperature has no finite inverse; the largest float separates
  // all but equal logits as well as it would.
  const WeightScale scale = {
      blocks.max,
      std::min(1 / params_.temperature, std::numeric_limits<float>::max())};
  const WeightFilter filter = Truncate(params_, scale, blocks, logits);
  std::vector<double> masses;
  const double total = MassOf(logits, blocks, scale, filter, &masses);
  const double target = UniformOf(params_.seed, num_generated_) * total;

  // The first token whose cumulative mass exceeds the target. Block sums and
  // the walk in a block round differently: a walk that ends below the target
  // takes the block's last token that weighs anything, and a target rounded up
  // to the total takes the likeliest.
  int32_t token = ArgMax(logits, blocks);
  double before = 0;
  for (size_t b = 0; b < masses.size(); ++b) {
    if (before + masses[b] <= target) {
      before += masses[b];
      continue;
    }
    const int64_t first = static_cast<int64_t>(b) * kLogitBlock;
    const int64_t count = std::min(kLogitBlock, vocab_size_ - first);
    float weights[kLogitBlock];
    FilteredWeights(&logits[first], count, scale, filter, weights);
    for (int64_t i = 0; i < count; ++i) {
      if (weights[i] == 0) continue;
      token = static_cast<int32_t>(first + i);
      before += weights[i];
      if (before > target) break;
    }
    break;
  }
  return token;
}

}  // namespace inlay
