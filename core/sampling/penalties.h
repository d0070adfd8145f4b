// What a request has seen, and the sparse changes that sampling options make to
// its logits: bias, penalties, bans. Must not know distributions or random
// numbers.
#ifndef INLAY_CORE_SAMPLING_PENALTIES_H_
#define INLAY_CORE_SAMPLING_PENALTIES_H_

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/sampling/sampling_params.h"

namespace inlay {

// Counts of the tokens inside the penalties' window. Keeps nothing where no
// penalty is on.
class SeenTokens {
 public:
  explicit SeenTokens(const SamplingParams& params);

  void Observe(int32_t token, bool generated);

  // Forgets everything.
  void Clear();

  // Repetition first, then frequency and presence. Tokens outside the
  // vocabulary change nothing.
  void Apply(const SamplingParams& params, absl::Span<float> logits) const;

  // Appends (token, its logit) for each token that Apply may change.
  void AppendLogits(absl::Span<const float> logits,
                    std::vector<std::pair<int32_t, float>>& out) const;

  bool empty() const { return counts_.empty(); }

 private:
  struct Counts {
    int32_t prompt = 0;
    int32_t generated = 0;
  };
  struct Entry {
    int32_t token;
    bool generated;
  };

  void Add(Entry entry, int32_t sign);

  int32_t last_n_;  // -1 = unbounded, 0 = nothing is counted
  std::unordered_map<int32_t, Counts> counts_;
  std::deque<Entry> window_;  // the last n, oldest first; unused if unbounded
};

// Logit bias, penalties, bans, in this order; then finite overflows are brought
// back to the largest float, so that no +inf appears. Returns whether a logit
// may have changed.
bool AdjustLogits(const SamplingParams& params, const SeenTokens& seen,
                  absl::Span<float> logits);

// Sets logits to -inf where `allowed` (bit i % 32 of word i / 32 for token i)
// is 0. `allowed` holds ceil(logits.size() / 32) words; the bits beyond are
// ignored.
void MaskLogits(absl::Span<const uint32_t> allowed, absl::Span<float> logits);

}  // namespace inlay

#endif  // INLAY_CORE_SAMPLING_PENALTIES_H_
