// AheadStep: the decode step that comes next if every request of a step goes
// on, as it is queued on the device before the host knows that step's tokens.
// Owns its arrays and a reference to each KV block that it writes to; knows no
// streams.
#ifndef INLAY_CORE_ENGINE_AHEAD_STEP_H_
#define INLAY_CORE_ENGINE_AHEAD_STEP_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/engine/device_sampler.h"
#include "core/engine/step_batch.h"
#include "core/model/model.h"
#include "memory/kv/block_pool.h"

namespace inlay {

// Thread-compatible, together with the pool. Order: Add() in the order in which
// the scheduler will plan the rows, Place(), and once it has been queued
// Release() before the next step reserves KV, Match(), Clear().
class AheadStep {
 public:
  bool empty() const { return rows_.empty(); }
  size_t num_rows() const { return rows_.size(); }

  // Of a row of `batch`, a step that the device samples, and its request: the
  // token is its last, whatever it is ...
  static bool Ends(const StepBatch& batch, const LogitRow& row);
  // ... or it goes on, and in a way that does not depend on the token, unless
  // that stops it.
  static bool GoesOn(const StepBatch& batch, const LogitRow& row);
  // The row's request goes on with the token of row `source` of those that the
  // device computes.
  void Add(const StepBatch& batch, const LogitRow& row, int32_t source);
  // Once all are there, and the reservations of `batch` too: takes the blocks
  // that the rows write to. False, and everything cleared: there are too few.
  bool Place(const StepBatch& batch, absl::Span<const KvGroup> groups,
             KvBlockPool& pool);

  // For the device. The view points into this object.
  ForwardBatch View(KvBase kv_base);
  int64_t num_blocks() const { return static_cast<int64_t>(blocks_.size()); }
  SampleBatch sampling() const { return {sample_options_, logit_edits_}; }
  absl::Span<const int32_t> sources() const { return sources_; }

  template <typename StillRuns>
  bool AllRun(const StillRuns& still_runs) const {
    return std::all_of(rows_.begin(), rows_.end(),
                       [&](const Row& row) { return still_runs(row.request); });
  }
  // The references go back, in an order in which rows whose request
  // `still_runs` get the same blocks when they are reserved again.
  template <typename StillRuns>
  void Release(KvBlockPool& pool, const StillRuns& still_runs) {
    for (const bool running : {false, true}) {
      for (size_t i = held_.size(); i-- > 0;) {
        if (still_runs(rows_[i / num_groups_].request) == running)
          pool.Unref(held_[i]);
      }
    }
    held_.clear();
  }
  // Whether all of `batch`, complete, was computed as rows of this step; which
  // ones.
  bool Match(const StepBatch& batch, std::vector<int32_t>* rows) const;
  // Released before.
  void Clear();

 private:
  struct Row {
    RequestId request = 0;
    int32_t item = 0;  // of the step before
    int32_t position = 0;
  };

  static const KvReservation& ReservationOf(const StepBatch& batch,
                                            const Row& row, size_t group);
  // References to the blocks. False: there are too few.
  bool Take(const StepBatch& batch, absl::Span<const KvGroup> groups,
            KvBlockPool& pool);

  std::vector<Row> rows_;
  size_t num_groups_ = 1;
  std::vector<int32_t> held_;  // [rows][groups], one reference each

  std::vector<int32_t> sources_;
  std::vector<int32_t> tokens_;  // only their number counts
  std::vector<int32_t> positions_;
  std::vector<int64_t> slots_;                // [groups][rows]
  std::vector<AttentionSequence> sequences_;  // [groups][rows]
  std::vector<int32_t> state_sources_;        // [rows], of models with states
  std::vector<size_t> tables_;                // where each begins in blocks_
  std::vector<int32_t> blocks_;
  std::vector<int32_t> logit_rows_;
  std::vector<SampleOptions> sample_options_;
  std::vector<LogitEdit> logit_edits_;
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_AHEAD_STEP_H_
