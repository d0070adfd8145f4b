// The step ahead: a GPU that begins the next decode step before the host has
// seen this one's tokens never waits for the host. All else keeps its order:
// the next step is planned and built when this one is committed, and where that
// gives what was queued, it is not queued again.
#include "core/engine/model_runner.h"

namespace inlay {

// Tokens are known only to the device: what the next step consists of must not
// depend on them, but for requests that end.
bool ModelRunner::MayGoAhead(const StepLimits& limits) {
  // Where steps have a time budget, the device is the host's between them.
  if (limits.budget_us > 0 || recorder_ != nullptr || !executor_->CanGoAhead())
    return false;
  // The next step has nothing but decodes: everybody who is here samples now.
  return scheduler_->num_waiting() == 0 &&
         plan_.items.size() == scheduler_->num_running() &&
         batch_.items.size() == batch_.reservations.size() &&
         batch_.items.size() == batch_.rows.size() &&
         !batch_.sample_options.empty() &&
         batch_.items.size() <= Executor::kMostFixed;
}

void ModelRunner::PlanAhead() {
  const auto row_of = [&](RequestId id, size_t from) {
    for (size_t i = 0; i < batch_.rows.size(); ++i) {
      const size_t row = (from + i) % batch_.rows.size();
      if (batch_.items[row].plan.id == id) return row;
    }
    return batch_.rows.size();
  };
  size_t row = 0;
  for (const SchedEntry* entry : scheduler_->queues().running()) {
    row = row_of(entry->request.id, row);
    if (row == batch_.rows.size()) return ahead_.Clear();
    const LogitRow& logit_row = batch_.rows[row];
    if (!AheadStep::GoesOn(batch_, logit_row)) {
      // One that ends with this token is left out; one that waits to see it
      // would not get on.
      if (!AheadStep::Ends(batch_, logit_row)) return ahead_.Clear();
    } else {
      ahead_.Add(batch_, logit_row,
                 is_taken_ ? device_rows_[row] : static_cast<int32_t>(row));
    }
    row = (row + 1) % batch_.rows.size();
  }
  if (!ahead_.empty()) ahead_.Place(batch_, kv_->groups(), kv_->pool());
}

bool ModelRunner::ReleaseAhead() {
  if (ahead_.empty()) return false;
  ahead_.Release(kv_->pool(),
                 [&](RequestId id) { return requests_.contains(id); });
  return true;
}

void ModelRunner::TakeAhead() {
  is_taken_ = false;
  ahead_lost_ = false;
  if (ahead_.empty()) return;
  is_taken_ = ahead_.Match(batch_, &device_rows_);
  // Blocks that it writes to may be anybody's by now, if the requests they were
  // for have ended or lost their KV since.
  if (!is_taken_ || batch_.items.size() != ahead_.num_rows()) WaitForAhead();
  if (is_taken_) ++metrics_.steps_ahead;
  ahead_.Clear();
}

void ModelRunner::DropAhead() {
  if (!ahead_.empty()) {
    WaitForAhead();
    ReleaseAhead();
  }
  // Also what a row that memory ran out for has left.
  ahead_.Clear();
}

// Its errors are the next step's, or nobody's.
void ModelRunner::WaitForAhead() { executor_->Drain().IgnoreError(); }

void ModelRunner::WaitForEndedAhead() {
  if (ahead_.empty()) return;
  {
    MutexLock lock(&mu_);
    if (ahead_.AllRun([&](RequestId id) { return requests_.contains(id); }))
      return;
  }
  WaitForAhead();
}

}  // namespace inlay
