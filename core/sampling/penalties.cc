// Bias, penalties and bans touch only the tokens named or seen, so their cost
// does not grow with the vocabulary.
#include "core/sampling/penalties.h"

#include <algorithm>
#include <limits>

namespace inlay {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMaxFloat = std::numeric_limits<float>::max();

bool UsesPenalties(const SamplingParams& params) {
  return params.repetition_penalty != 1 || params.frequency_penalty != 0 ||
         params.presence_penalty != 0;
}

}  // namespace

SeenTokens::SeenTokens(const SamplingParams& params)
    : last_n_(UsesPenalties(params) ? params.penalty_last_n : 0) {}

void SeenTokens::Observe(int32_t token, bool generated) {
  if (last_n_ == 0) return;
  Add({token, generated}, 1);
  if (last_n_ < 0) return;
  window_.push_back({token, generated});
  if (window_.size() > static_cast<size_t>(last_n_)) {
    Add(window_.front(), -1);
    window_.pop_front();
  }
}

void SeenTokens::Clear() {
  counts_.clear();
  window_.clear();
}

void SeenTokens::Add(Entry entry, int32_t sign) {
  const auto it = counts_.try_emplace(entry.token).first;
  Counts& counts = it->second;
  (entry.generated ? counts.generated : counts.prompt) += sign;
  if (counts.prompt == 0 && counts.generated == 0) counts_.erase(it);
}

void SeenTokens::Apply(const SamplingParams& params,
                       absl::Span<float> logits) const {
  for (const auto& [token, counts] : counts_) {
    if (token < 0 || static_cast<size_t>(token) >= logits.size()) continue;
    float logit = logits[token];
    logit = logit > 0 ? logit / params.repetition_penalty
                      : logit * params.repetition_penalty;
    if (counts.generated > 0) {
      logit -= params.frequency_penalty * static_cast<float>(counts.generated);
      logit -= params.presence_penalty;
    }
    logits[token] = std::min(logit, kMaxFloat);
  }
}

void SeenTokens::AppendLogits(
    absl::Span<const float> logits,
    std::vector<std::pair<int32_t, float>>& out) const {
  for (const auto& [token, counts] : counts_) {
    if (token < 0 || static_cast<size_t>(token) >= logits.size()) continue;
    out.emplace_back(token, logits[token]);
  }
}

bool AdjustLogits(const SamplingParams& params, const SeenTokens& seen,
                  absl::Span<float> logits) {
  for (const auto& [token, bias] : params.logit_bias) {
    logits[token] = std::min(logits[token] + bias, kMaxFloat);
  }
  seen.Apply(params, logits);
  for (int32_t token : params.banned_tokens) logits[token] = -kInf;
  return !seen.empty() || !params.logit_bias.empty() ||
         !params.banned_tokens.empty();
}

void MaskLogits(absl::Span<const uint32_t> allowed, absl::Span<float> logits) {
  for (size_t word = 0; word < allowed.size(); ++word) {
    if (allowed[word] == ~uint32_t{0}) continue;
    const size_t first = word * 32;
    const size_t count = std::min<size_t>(32, logits.size() - first);
    for (size_t bit = 0; bit < count; ++bit) {
      if ((allowed[word] >> bit & 1) == 0) logits[first + bit] = -kInf;
    }
  }
}

}  // namespace inlay
