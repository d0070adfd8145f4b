// StatePlan: the state runs of a step (state_runs.h) where CUDA kernels can
// read them. Made on the host once a step for all layers, part of the step's
// image on the device. Pure: no CUDA.
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_STATE_PLAN_H_
#define INLAY_KERNELS_LINEAR_ATTENTION_STATE_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/attention/attention.h"

namespace inlay {

// Tokens of a chunk: what CUDA rows take at once of sequences that have as many
// in a step. A run's chunks begin with the run; the last may be shorter.
inline constexpr int kStateChunk = 64;

// Chunks of a plan of so many rows, at most, where blocks have kStateChunk
// tokens or more: n >= 64 tokens of a sequence lie in n / 64 + 2 runs or fewer,
// and chunks are n / 64 and one a run.
inline int64_t MostStateChunks(int64_t rows) { return rows / 16; }

// StateRun, its state before the first token left out: of a sequence's first
// run that is `source`, of others the one that the run before leaves.
struct StatePlanRun {
  int32_t row;
  int32_t count;
  int32_t to;             // block
  int32_t sequence_row;   // of the sequence's first token
  int32_t source;         // block with the state before that one; -1: zeros
  int32_t sequence_rows;  // the sequence's tokens
  int32_t first_chunk;    // chunks of the plan before the run's
  int32_t reserved;
};
static_assert(sizeof(StatePlanRun) == 32);

struct StatePlan {
  // What kernels are launched for. Sequences that are missing have no runs,
  // rows that are computed for nobody no sequence.
  int64_t sequences = 0;
  int64_t rows = 0;
  int64_t longest = 0;  // tokens of the sequence that has most
  // On the device.
  const StatePlanRun* runs = nullptr;   // sequence by sequence
  const int32_t* first_runs = nullptr;  // [sequences + 1]
  const int32_t* run_of_row = nullptr;  // [rows]; -1: none
};

// Of the image of a plan for up to so many sequences and rows.
size_t StatePlanBytes(int64_t sequences, int64_t rows);

// As StateParams has the first three. `sequences` may be less than the plan's,
// and their tokens fewer than `rows`. The image is written to `image` and will
// be at `device`, both 64-byte aligned.
StatePlan BuildStatePlan(absl::Span<const AttentionSequence> sequences,
                         const int32_t* sources, int block_size,
                         int64_t num_sequences, int64_t rows, std::byte* image,
                         const std::byte* device);

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_STATE_PLAN_H_
