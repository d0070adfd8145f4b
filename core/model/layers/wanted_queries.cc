#include "core/model/layers/wanted_queries.h"

#include <algorithm>

namespace inlay {

int64_t KeepWantedQueries(absl::Span<const AttentionSequence> sequences,
                          absl::Span<const int32_t> rows,
                          AttentionSequence* out) {
  int64_t count = 0;
  auto next = rows.begin();
  for (const AttentionSequence& sequence : sequences) {
    const int32_t end = sequence.q_begin + sequence.q_len;
    const auto first = next;
    next = std::lower_bound(first, rows.end(), end);
    if (next == first) continue;
    const int32_t after = *(next - 1) + 1;
    AttentionSequence& wanted = out[count++];
    wanted.q_begin = *first;
    wanted.q_len = after - *first;
    wanted.kv_len = sequence.kv_len - (end - after);
    wanted.blocks = sequence.blocks;
  }
  return count;
}

}  // namespace inlay
