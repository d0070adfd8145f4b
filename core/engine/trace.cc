#include "core/engine/trace.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "memory/formatted_string.h"

namespace inlay {
namespace {

absl::Status NotRecording() {
  return absl::FailedPreconditionError(
      "nothing is being traced: start a trace first");
}

}  // namespace

absl::Status TraceRecorder::Start(size_t num_events) {
  if (num_events == 0 || num_events > kMaxEvents) {
    return absl::InvalidArgumentError(
        FormattedString("a trace of %d events is asked for, allowed: 1 to %d",
                        num_events, kMaxEvents));
  }
  MutexLock control(&control_mu_);
  if (on()) {
    return absl::FailedPreconditionError(
        "a trace is being recorded already: stop it first");
  }
  Exchange(std::vector<TraceEvent>(num_events));
  return absl::OkStatus();
}

absl::StatusOr<TraceLog> TraceRecorder::Take() {
  MutexLock control(&control_mu_);
  if (!on()) return NotRecording();
  size_t size = 0;
  {
    MutexLock lock(&mu_);
    size = ring_.size();
  }
  // Not under the lock that recording waits for.
  return Exchange(std::vector<TraceEvent>(size));
}

absl::StatusOr<TraceLog> TraceRecorder::Stop() {
  MutexLock control(&control_mu_);
  if (!on()) return NotRecording();
  return Exchange({});
}

void TraceRecorder::PutBack(TraceLog log) {
  std::vector<TraceEvent> ring = std::move(log.events);
  const size_t size = ring.capacity();  // as large as it was
  uint64_t num_recorded = ring.size();
  ring.resize(size);
  MutexLock control(&control_mu_);
  MutexLock lock(&mu_);
  if (begin_ != log.end || size == 0) return;
  const uint64_t overwritten =
      num_recorded_ - std::min<uint64_t>(num_recorded_, ring_.size());
  for (uint64_t i = overwritten; i < num_recorded_; ++i) {
    ring[num_recorded++ % size] = ring_[i % ring_.size()];
  }
  begin_ = log.begin;
  num_recorded_ = num_recorded;
  num_lost_ = log.num_lost + overwritten;
  ring_.swap(ring);
  on_.store(true, std::memory_order_relaxed);
}

TraceLog TraceRecorder::Exchange(std::vector<TraceEvent> ring) {
  TraceLog log;
  uint64_t num_recorded = 0;
  {
    MutexLock lock(&mu_);
    log.begin = begin_;
    log.end = Now();
    begin_ = log.end;
    log.num_lost = std::exchange(num_lost_, 0);
    num_recorded = std::exchange(num_recorded_, 0);
    on_.store(!ring.empty(), std::memory_order_relaxed);
    ring_.swap(ring);
  }
  const size_t size = ring.size();
  if (num_recorded > size) {
    log.num_lost += num_recorded - size;
    std::rotate(ring.begin(),
                ring.begin() + static_cast<int64_t>(num_recorded % size),
                ring.end());
  } else {
    ring.resize(num_recorded);
  }
  log.events = std::move(ring);
  return log;
}

void TraceRecorder::Record(TraceEventType type, uint32_t model, uint64_t id,
                           const Values& values) {
  Push({Now(), id, type, model, values});
}

void TraceRecorder::RecordStep(uint32_t model, const TraceStep& step) {
  TraceEvent event;
  event.time = step.begin;
  event.id = step.step;
  event.type = TraceEventType::kStep;
  event.model = model;
  SteadyTime last = step.begin;
  for (size_t i = 0; i < kNumStepPhases; ++i) {
    const SteadyTime end = std::max(last, step.phase_ends[i]);
    event.values[i] =
        std::chrono::duration_cast<std::chrono::nanoseconds>(end - last)
            .count();
    last = end;
  }
  event.values[kStepPrefillTokens] = step.prefill_tokens;
  event.values[kStepDecodeTokens] = step.decode_tokens;
  event.values[kStepRequests] = step.requests;
  event.values[kStepPredictedUs] = step.predicted_us;
  event.values[kStepBudgetUs] = step.budget_us;
  Push(event);
}

void TraceRecorder::Push(const TraceEvent& event) {
  MutexLock lock(&mu_);
  if (ring_.empty()) return;  // stopped since the caller looked
  ring_[num_recorded_++ % ring_.size()] = event;
}

}  // namespace inlay
