#include "kernels/linear_attention/state_plan.h"

#include <algorithm>

#include "kernels/linear_attention/state_runs.h"

namespace inlay {
namespace {

// Runs are never more than rows.
size_t FirstRunsOffset(int64_t rows) {
  return static_cast<size_t>(rows) * sizeof(StatePlanRun);
}
size_t RunOfRowOffset(int64_t sequences, int64_t rows) {
  return FirstRunsOffset(rows) +
         static_cast<size_t>(sequences + 1) * sizeof(int32_t);
}

}  // namespace

size_t StatePlanBytes(int64_t sequences, int64_t rows) {
  return RunOfRowOffset(sequences, rows) +
         static_cast<size_t>(rows) * sizeof(int32_t);
}

StatePlan BuildStatePlan(absl::Span<const AttentionSequence> sequences,
                         const int32_t* sources, int block_size,
                         int64_t num_sequences, int64_t rows, std::byte* image,
                         const std::byte* device) {
  const size_t firsts_at = FirstRunsOffset(rows);
  const size_t rows_at = RunOfRowOffset(num_sequences, rows);
  auto* const runs = reinterpret_cast<StatePlanRun*>(image);
  auto* const firsts = reinterpret_cast<int32_t*>(image + firsts_at);
  auto* const run_of_row = reinterpret_cast<int32_t*>(image + rows_at);
  std::fill_n(run_of_row, rows, -1);
  StatePlan plan;
  int32_t count = 0, chunks = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const AttentionSequence& sequence = sequences[s];
    plan.longest = std::max<int64_t>(plan.longest, sequence.q_len);
    firsts[s] = count;
    ForEachStateBlock(sequence, block_size, [&](const StateBlockRun& part) {
      runs[count] = {static_cast<int32_t>(part.row),
                     static_cast<int32_t>(part.count),
                     sequence.blocks[part.block],
                     sequence.q_begin,
                     sources[s],
                     sequence.q_len,
                     chunks,
                     0};
      std::fill_n(run_of_row + part.row, part.count, count);
      ++count;
      if (sequence.q_len >= kStateChunk) {
        chunks +=
            static_cast<int32_t>((part.count + kStateChunk - 1) / kStateChunk);
      }
    });
  }
  std::fill(firsts + sequences.size(), firsts + num_sequences + 1, count);
  plan.sequences = num_sequences;
  plan.rows = rows;
  plan.runs = reinterpret_cast<const StatePlanRun*>(device);
  plan.first_runs = reinterpret_cast<const int32_t*>(device + firsts_at);
  plan.run_of_row = reinterpret_cast<const int32_t*>(device + rows_at);
  return plan;
}

}  // namespace inlay
