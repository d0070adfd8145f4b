// Pooler: the hidden states of a sequence's tokens become one vector.
#ifndef INLAY_CORE_ENGINE_POOLER_H_
#define INLAY_CORE_ENGINE_POOLER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/formats/embedding_config.h"

namespace inlay {

// To length 1. INTERNAL when a value is not finite.
absl::Status NormaliseEmbedding(absl::Span<float> values);
// INTERNAL when a value is not finite.
absl::Status CheckFinite(absl::Span<const float> values);

class Pooler {
 public:
  Pooler() = default;  // takes nothing
  Pooler(Pooling pooling, bool normalise)
      : pooling_(pooling), normalise_(normalise) {}

  bool active() const { return pooling_ != Pooling::kNone; }
  // The first position whose state counts, of `num_tokens`.
  int64_t first(int64_t num_tokens) const {
    return pooling_ == Pooling::kLast ? num_tokens - 1 : 0;
  }
  bool Wants(int64_t position, int64_t num_tokens) const;
  // States of wanted positions, each once, in ascending order: sums do not
  // depend on how a sequence was cut.
  void Add(absl::Span<const float> hidden);
  // INTERNAL when a value is not finite.
  absl::StatusOr<std::vector<float>> Finish() const;

 private:
  Pooling pooling_ = Pooling::kNone;
  bool normalise_ = false;
  std::vector<double> sum_;
  int64_t count_ = 0;
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_POOLER_H_
