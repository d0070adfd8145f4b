// What a request has seen, and the sparse changes that sampling options make to
// its logits: bias, penalties, bans, as edits that any device can make. Must
// not know distributions or random numbers.
#ifndef INLAY_CORE_SAMPLING_PENALTIES_H_
#define INLAY_CORE_SAMPLING_PENALTIES_H_

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "absl/types/span.h"
#include "core/sampling/sampling_params.h"
#include "kernels/sample/sample.h"

namespace inlay {

// The edits of bias and bans, one a token, by ascending token. Biases of a
// token are added up; a sum beyond the floats is the largest.
std::vector<LogitEdit> FixedEdits(const SamplingParams& params);

// Counts of the tokens inside the penalties' window. Keeps nothing where no
// penalty is on.
class SeenTokens {
 public:
  explicit SeenTokens(const SamplingParams& params);

  // Whether anything is counted.
  bool counts() const { return last_n_ != 0; }

  void Observe(int32_t token, bool generated);

  // Forgets everything.
  void Clear();

  // Appends `fixed`, with the counts of what was seen, and edits for the other
  // tokens seen; those outside the vocabulary change nothing.
  void AppendEdits(absl::Span<const LogitEdit> fixed, int64_t vocab_size,
                   std::vector<LogitEdit>& out) const;

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

}  // namespace inlay

#endif  // INLAY_CORE_SAMPLING_PENALTIES_H_
