// StepBatch: everything one step works on, from plan to events. Its vectors
// keep their capacity from step to step, so that a step allocates little.
#ifndef INLAY_CORE_ENGINE_STEP_BATCH_H_
#define INLAY_CORE_ENGINE_STEP_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/engine/request.h"
#include "core/model/model.h"
#include "memory/kv/tables.h"
#include "sched/step_plan.h"

namespace inlay {

// One token whose logits are wanted, and what for.
struct LogitRow {
  int32_t item = 0;
  int64_t position = 0;
  bool samples = false;  // the next token is chosen from it
  bool emits = false;    // the host wants the logits
  int32_t scored = -1;   // the token whose log-probability is wanted; -1: none
  bool pools = false;    // the hidden state is part of an embedding
  bool classifies = false;  // the logits are those of labels

  bool needs_logits() const {
    return samples || emits || scored >= 0 || classifies;
  }

  // Filled by the step.
  absl::Status status;
  SampleResult sample;
  float score = 0.0f;
  std::vector<float> logits;
};

// A plan item and its part of the batch.
struct BatchItem {
  StepItem plan;
  Request* request = nullptr;
  int32_t first_row = 0;  // LogitRows [first_row, last_row) are its own
  int32_t last_row = 0;
  absl::Status status;  // not OK: the request ends with it
  // What the request's pooler gives in this step, and the model of it: an
  // embedding or logits of labels.
  absl::StatusOr<std::vector<float>> pooled = std::vector<float>();
};

struct StepBatch {
  std::vector<BatchItem> items;
  std::vector<KvTablesReservation> reservations;  // of items, in their order
  std::vector<KvBlockCopy> copies;                // before the forward pass
  int32_t decode_tokens = 0;
  int32_t prefill_tokens = 0;

  // The ragged batch, token by token.
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<int32_t> segments;             // empty: all 0
  std::vector<int64_t> slots;                // [groups][tokens]
  std::vector<AttentionSequence> sequences;  // [groups][sequences]
  std::vector<int32_t> final_lengths;        // see ForwardBatch
  size_t num_groups = 1;
  // Block tables of all sequences, one after another, group by group.
  std::vector<int32_t> blocks;
  std::vector<int32_t> state_sources;  // see ForwardBatch
  std::vector<int32_t> logit_rows;
  std::vector<LogitRow> rows;  // of logit_rows
  // How the device samples the rows; empty where the host does.
  std::vector<SampleOptions> sample_options;
  std::vector<LogitEdit> logit_edits;

  void Clear() {
    items.clear();
    reservations.clear();
    copies.clear();
    decode_tokens = prefill_tokens = 0;
    tokens.clear();
    positions.clear();
    segments.clear();
    slots.clear();
    sequences.clear();
    final_lengths.clear();
    blocks.clear();
    state_sources.clear();
    logit_rows.clear();
    rows.clear();
    sample_options.clear();
    logit_edits.clear();
  }
};

// What is wanted of the token at `position`, one of `item`'s.
LogitRow MakeLogitRow(const StepItem& item, const Request& request,
                      int64_t position);

// Appends `item` (of `request`, whose new tokens `reservation` has room for) to
// the batch: tokens, positions, copies and the rows of logits that the request
// asks for.
void AddToBatch(const StepItem& item, Request& request,
                KvTablesReservation reservation, StepBatch& batch);

// Once all items are there: where each token's KV goes, and the block tables.
void PlaceKv(absl::Span<const KvGroup> groups, StepBatch& batch);

// Fills sample_options and logit_edits where a device can do all that is wanted
// of the rows: tokens, without log-probabilities, scores or logits.
void PrepareSampling(StepBatch& batch);

// The view of the finished batch that Model::Forward takes. It points into
// `batch`, which must not grow any more.
ForwardBatch MakeForwardBatch(StepBatch& batch, KvBase kv_base);

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_STEP_BATCH_H_
