// The parts of sampling that the host's row and whoever samples on the host
// without it share.
#ifndef INLAY_KERNELS_SAMPLE_SAMPLE_CPU_H_
#define INLAY_KERNELS_SAMPLE_SAMPLE_CPU_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/sample/logit_blocks.h"
#include "kernels/sample/sample.h"

namespace inlay {

// Sets logits to -inf where `allowed` (bit i % 32 of word i / 32 for token i)
// is 0. `allowed` holds ceil(logits.size() / 32) words; the bits beyond are
// ignored.
void MaskLogits(absl::Span<const uint32_t> allowed, absl::Span<float> logits);

// Each edit's token must be in the vocabulary. Penalties are those of
// `options`.
void ApplyEdits(const SampleOptions& options, absl::Span<const LogitEdit> edits,
                absl::Span<float> logits);

// Steps 3 to 5 of sample.h. `blocks` is that of `logits`, valid, max not -inf;
// top-k and top-p may make some logits -inf.
int32_t ChooseToken(const SampleOptions& options, const LogitBlocks& blocks,
                    absl::Span<float> logits);

}  // namespace inlay

#endif  // INLAY_KERNELS_SAMPLE_SAMPLE_CPU_H_
