// Log-softmax on the block passes.
#include "core/sampling/log_softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace inlay {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

}  // namespace

LogNormalizer LogNormalizerOf(absl::Span<const float> logits,
                              const LogitBlocks& blocks) {
  const uint64_t mass =
      MassOf(logits, blocks, {blocks.max, 1}, {-kInf, 0}, nullptr);
  return {blocks.max, std::log(MassValue(mass))};
}

std::vector<TokenLogprob> TopLogprobs(absl::Span<const float> logits,
                                      const LogitBlocks& blocks,
                                      LogNormalizer normalizer, int32_t count) {
  std::vector<TokenLogprob> top;
  if (count <= 0) return top;
  const float low = LowerBoundOfTop(blocks, count);
  ForEachLogitFrom(logits, blocks, low, [&](int64_t id, float logit) {
    top.push_back({static_cast<int32_t>(id), logit});
  });
  const size_t kept = std::min(top.size(), static_cast<size_t>(count));
  std::partial_sort(top.begin(), top.begin() + kept, top.end(),
                    [](const TokenLogprob& a, const TokenLogprob& b) {
                      return a.logprob > b.logprob ||
                             (a.logprob == b.logprob && a.token < b.token);
                    });
  top.resize(kept);
  // Rounding of the difference could merge neighbours, so it comes after the
  // ordering.
  for (TokenLogprob& t : top) {
    t.logprob = normalizer.LogProb(t.logprob);
  }
  return top;
}

float LogProbOf(absl::Span<const float> logits, int32_t token) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  if (token < 0 || static_cast<size_t>(token) >= logits.size()) return kNan;
  const LogitBlocks blocks = ScanLogits(logits);
  if (!blocks.valid || blocks.max == -kInf) return kNan;
  return LogNormalizerOf(logits, blocks).LogProb(logits[token]);
}

}  // namespace inlay
