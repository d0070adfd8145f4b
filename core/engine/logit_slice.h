// How many rows of logits are in memory at once. A step with more rows takes
// them in slices, so that scoring a long prompt needs no [prompt, vocab]
// matrix.
#ifndef INLAY_CORE_ENGINE_LOGIT_SLICE_H_
#define INLAY_CORE_ENGINE_LOGIT_SLICE_H_

#include <cstdint>

namespace inlay {

// Enough rows that reading the output layer's weights again for each slice
// costs less than the arithmetic on them.
inline constexpr int64_t kLogitSlice = 32;

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_LOGIT_SLICE_H_
