// Passes of the host over one position's logits, in blocks: maxima, softmax
// weights and their sums. What is built on them looks at a block's maximum
// first and reads only the blocks that matter, which is what keeps a 128k
// vocabulary within tens of microseconds. Must not know sampling options.
#ifndef INLAY_KERNELS_SAMPLE_LOGIT_BLOCKS_H_
#define INLAY_KERNELS_SAMPLE_LOGIT_BLOCKS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace inlay {

// 64 floats are four cache lines: long enough to amortise a block's horizontal
// maximum, short enough that the one block that holds a hit is cheap to rescan.
inline constexpr int64_t kLogitBlock = 64;

struct LogitBlocks {
  std::vector<float> block_max;  // one a block of kLogitBlock logits
  float max = 0;                 // of all; -inf where every logit is -inf
  bool valid = false;            // no NaN and no +inf; else max means nothing
};

LogitBlocks ScanLogits(absl::Span<const float> logits);

// The first NaN or +inf, or -1.
int64_t FirstInvalidLogit(absl::Span<const float> logits);

// The lowest index of the largest logit. `blocks` is that of `logits`, valid.
int32_t ArgMax(absl::Span<const float> logits, const LogitBlocks& blocks);

// A logit that at least `count` logits reach (fewer only where fewer are
// finite): the count-th largest block maximum, as each comes from a logit of
// its own. The lowest finite float where there are fewer blocks than that.
float LowerBoundOfTop(const LogitBlocks& blocks, int64_t count);

// Calls visit(id, logit) in ascending id for every logit >= low.
template <typename Visit>
void ForEachLogitFrom(absl::Span<const float> logits, const LogitBlocks& blocks,
                      float low, Visit visit) {
  const int64_t size = static_cast<int64_t>(logits.size());
  for (size_t b = 0; b < blocks.block_max.size(); ++b) {
    if (blocks.block_max[b] < low) continue;
    const int64_t first = static_cast<int64_t>(b) * kLogitBlock;
    const int64_t end = std::min(size, first + kLogitBlock);
    for (int64_t i = first; i < end; ++i) {
      if (logits[i] >= low) visit(i, logits[i]);
    }
  }
}

// How a logit becomes a softmax weight: exp((logit - max) / temperature), a
// float within 3 units in the last place; 1 at the maximum, 0 below exp(-86).
struct WeightScale {
  float max = 0;
  float inverse_temperature = 1;
};

// out[i] = weight of logits[i]; both hold `count` floats and do not overlap.
void Weights(const float* logits, int64_t count, WeightScale scale, float* out);

// Which logits take part in a sum.
struct WeightFilter {
  float min_logit;   // at least; -inf = all
  float min_weight;  // at least; 0 = all
};

// As Weights, but 0 for those that the filter refuses.
void FilteredWeights(const float* logits, int64_t count, WeightScale scale,
                     WeightFilter filter, float* out);

// A sum of fixed-point weights as the number it stands for.
double MassValue(uint64_t mass);

// The sum of the filtered weights, each in fixed point: exact. `masses`,
// nullable, receives each block's sum.
uint64_t MassOf(absl::Span<const float> logits, const LogitBlocks& blocks,
                WeightScale scale, WeightFilter filter,
                std::vector<uint64_t>* masses);

}  // namespace inlay

#endif  // INLAY_KERNELS_SAMPLE_LOGIT_BLOCKS_H_
