// Top-k, top-p and min-p as one threshold on the logits, found without sorting
// the vocabulary: the host's way. Must not know penalties or random numbers.
//
// All three keep a prefix of the order "larger logit first, ties by lower id",
// so what they keep is described by the smallest logit kept and, where only
// some of the logits equal to it are kept, by how many.
#ifndef INLAY_KERNELS_SAMPLE_TRUNCATION_H_
#define INLAY_KERNELS_SAMPLE_TRUNCATION_H_

#include "absl/types/span.h"
#include "kernels/sample/logit_blocks.h"
#include "kernels/sample/sample.h"

namespace inlay {

// The filter for what top-k, then top-p, then min-p keep. Logits equal to the
// threshold that are one too many (those of the highest ids) become -inf in
// `logits`. `blocks` is that of `logits`, valid, max not -inf.
WeightFilter Truncate(const SampleOptions& options, WeightScale scale,
                      const LogitBlocks& blocks, absl::Span<float> logits);

}  // namespace inlay

#endif  // INLAY_KERNELS_SAMPLE_TRUNCATION_H_
