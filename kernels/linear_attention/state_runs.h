// State runs: where the recurrent ops of this folder find a sequence's state
// and where they leave it. A state is kept where a block's tokens end and where
// a step ends, so a sequence's tokens fall into runs that end there. What comes
// out does not depend on where runs end: states are float32, and so is what a
// token is computed from.
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_STATE_RUNS_H_
#define INLAY_KERNELS_LINEAR_ATTENTION_STATE_RUNS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/attention/attention.h"
#include "memory/kv/kv_layout.h"

namespace inlay {

struct StateParams {
  // Tokens of a sequence are rows [q_begin, q_begin + q_len); `blocks` are
  // those of the states' group, block of position p: blocks[p / block_size].
  absl::Span<const AttentionSequence> sequences;
  // [sequences]: the block with the state before the first token; -1: none yet,
  // zeros. May be the block of the first run.
  const int32_t* sources = nullptr;
  KvStateView state;
};

// Tokens of one sequence that lead from one state to the next.
struct StateRun {
  int64_t row = 0;
  int64_t count = 0;
  int64_t position = 0;             // of the first
  const std::byte* from = nullptr;  // null: zeros
  std::byte* to = nullptr;
};

// Calls visit(run) for each of the sequence's, in order.
template <typename Visit>
void ForEachStateRun(const StateParams& params, size_t sequence,
                     const Visit& visit) {
  const AttentionSequence& entry = params.sequences[sequence];
  const int64_t size = params.state.block_size;
  const int32_t source = params.sources[sequence];
  StateRun run;
  run.row = entry.q_begin;
  run.position = int64_t{entry.kv_len} - entry.q_len;
  run.from = source < 0 ? nullptr : params.state.State(source);
  while (run.position < entry.kv_len) {
    const int64_t block = run.position / size;
    run.count =
        std::min<int64_t>(entry.kv_len, (block + 1) * size) - run.position;
    run.to = params.state.State(entry.blocks[block]);
    visit(run);
    run.row += run.count;
    run.position += run.count;
    run.from = run.to;
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_STATE_RUNS_H_
