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

struct StatePlan;  // state_plan.h

struct StateParams {
  // Tokens of a sequence are rows [q_begin, q_begin + q_len); `blocks` are
  // those of the states' group, block of position p: blocks[p / block_size].
  absl::Span<const AttentionSequence> sequences;
  // [sequences]: the block with the state before the first token; -1: none yet,
  // zeros. No block that a run of this call is left in.
  const int32_t* sources = nullptr;
  KvStateView state;
  // CUDA rows only: made for `sequences` and `sources` and uploaded; they read
  // neither of those. They may read states of earlier calls before the kernels
  // queued before have ended: a copy to the device, as of the plan, separates
  // calls that share states.
  const StatePlan* plan = nullptr;
};

// Tokens of one sequence that lie in one block of the states' group.
struct StateBlockRun {
  int64_t row = 0;
  int64_t count = 0;
  int64_t position = 0;  // of the first
  int64_t block = 0;     // index into the sequence's table
};

// Calls visit(run) for each of the sequence's, in order.
template <typename Visit>
void ForEachStateBlock(const AttentionSequence& sequence, int64_t block_size,
                       const Visit& visit) {
  StateBlockRun run;
  run.row = sequence.q_begin;
  run.position = int64_t{sequence.kv_len} - sequence.q_len;
  while (run.position < sequence.kv_len) {
    run.block = run.position / block_size;
    run.count =
        std::min<int64_t>(sequence.kv_len, (run.block + 1) * block_size) -
        run.position;
    visit(run);
    run.row += run.count;
    run.position += run.count;
  }
}

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
  const int32_t source = params.sources[sequence];
  const std::byte* from = source < 0 ? nullptr : params.state.State(source);
  ForEachStateBlock(
      entry, params.state.block_size, [&](const StateBlockRun& part) {
        std::byte* const to = params.state.State(entry.blocks[part.block]);
        visit({part.row, part.count, part.position, from, to});
        from = to;
      });
}

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_STATE_RUNS_H_
