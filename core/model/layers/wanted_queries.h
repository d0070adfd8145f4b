// Which of a step's queries attention runs for where the logits of some tokens
// alone are wanted: as sequences, so that kernels need to know nothing of it.
#ifndef INLAY_CORE_MODEL_LAYERS_WANTED_QUERIES_H_
#define INLAY_CORE_MODEL_LAYERS_WANTED_QUERIES_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/attention/attention.h"

namespace inlay {

// `rows`: ForwardBatch::logit_rows. Of each of `sequences` that has some of
// them its queries from the first to the last of these, with the keys up to
// that one: of queries that see no later keys. To `out`, which has room for as
// many as there are of either; returns how many.
int64_t KeepWantedQueries(absl::Span<const AttentionSequence> sequences,
                          absl::Span<const int32_t> rows,
                          AttentionSequence* out);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_WANTED_QUERIES_H_
