// Bias, penalties and bans touch only the tokens named or seen, so their cost
// does not grow with the vocabulary.
#include "core/sampling/penalties.h"

#include <algorithm>
#include <limits>
#include <map>

namespace inlay {
namespace {

constexpr float kMaxFloat = std::numeric_limits<float>::max();

bool UsesPenalties(const SamplingParams& params) {
  return params.repetition_penalty != 1 || params.frequency_penalty != 0 ||
         params.presence_penalty != 0;
}

LogitEdit& EditOf(int32_t token, std::map<int32_t, LogitEdit>& edits) {
  LogitEdit& edit = edits[token];
  edit.token = token;
  return edit;
}

}  // namespace

std::vector<LogitEdit> FixedEdits(const SamplingParams& params) {
  std::map<int32_t, LogitEdit> edits;
  for (const auto& [token, bias] : params.logit_bias) {
    LogitEdit& edit = EditOf(token, edits);
    edit.bias = std::clamp(edit.bias + bias, -kMaxFloat, kMaxFloat);
  }
  for (int32_t token : params.banned_tokens) EditOf(token, edits).banned = 1;
  std::vector<LogitEdit> fixed;
  for (const auto& [token, edit] : edits) fixed.push_back(edit);
  return fixed;
}

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

void SeenTokens::AppendEdits(absl::Span<const LogitEdit> fixed,
                             int64_t vocab_size,
                             std::vector<LogitEdit>& out) const {
  for (LogitEdit edit : fixed) {
    const auto it = counts_.find(edit.token);
    if (it != counts_.end()) edit.generated = it->second.generated;
    out.push_back(edit);
  }
  for (const auto& [token, counts] : counts_) {
    if (token < 0 || token >= vocab_size) continue;
    const auto it = std::lower_bound(
        fixed.begin(), fixed.end(), token,
        [](const LogitEdit& edit, int32_t id) { return edit.token < id; });
    if (it != fixed.end() && it->token == token) continue;
    LogitEdit edit;
    edit.token = token;
    edit.generated = counts.generated;
    out.push_back(edit);
  }
}

}  // namespace inlay
