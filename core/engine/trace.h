// TraceRecorder: what happened in the engine and when, kept in a ring until
// somebody wants to see it. Knows no file format (api/src/trace_proto.h) and
// nobody who records.
#ifndef INLAY_CORE_ENGINE_TRACE_H_
#define INLAY_CORE_ENGINE_TRACE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "core/engine/trace_event.h"
#include "memory/mutex.h"

namespace inlay {

// Thread-safe; a lock that is below all others. Off at first: then each call
// costs a relaxed load. Recording takes the time, a lock and a copy; it never
// allocates or fails. The functions that record are named after their events.
class TraceRecorder {
 public:
  static constexpr size_t kMaxEvents = size_t{1} << 20;  // 112 MiB

  // From now on the newest `num_events` events are kept.
  // INVALID_ARGUMENT: not in [1, kMaxEvents]; FAILED_PRECONDITION: on already.
  // May throw std::bad_alloc, and has changed nothing then.
  absl::Status Start(size_t num_events);
  // What was recorded since Start() or the last Take(); recording goes on.
  // FAILED_PRECONDITION: off. May throw std::bad_alloc, likewise.
  absl::StatusOr<TraceLog> Take();
  // The same, and off. Frees the ring.
  absl::StatusOr<TraceLog> Stop();
  // As if `log` had not been taken, nor recording stopped: for who found no
  // memory to make something of it. Nothing, where a trace has begun since.
  void PutBack(TraceLog log);

  bool on() const { return on_.load(std::memory_order_relaxed); }

  void Step(uint32_t model, const TraceStep& step) {
    if (on()) RecordStep(model, step);
  }
  void Gauges(uint32_t model, const TraceGauges& now) {
    if (!on()) return;
    Record(TraceEventType::kGauges, model, 0,
           {now.running, now.waiting, now.kv_used, now.kv_free, now.kv_cached});
  }
  void Evicted(uint32_t model, int64_t blocks) {
    if (on()) Record(TraceEventType::kEvicted, model, 0, {blocks});
  }
  void Memory(int64_t budget_bytes, int64_t used_bytes) {
    if (on()) Record(TraceEventType::kMemory, 0, 0, {budget_bytes, used_bytes});
  }
  void Submitted(uint32_t model, RequestId id, int64_t prompt_tokens) {
    if (on()) Record(TraceEventType::kSubmitted, model, id, {prompt_tokens});
  }
  void PrefixHit(uint32_t model, RequestId id, int64_t found, int64_t wanted) {
    if (on()) Record(TraceEventType::kPrefixHit, model, id, {found, wanted});
  }
  void Started(uint32_t model, RequestId id, int64_t cached_tokens) {
    if (on()) Record(TraceEventType::kStarted, model, id, {cached_tokens});
  }
  void FirstToken(uint32_t model, RequestId id) {
    if (on()) Record(TraceEventType::kFirstToken, model, id, {});
  }
  void Preempted(uint32_t model, RequestId id) {
    if (on()) Record(TraceEventType::kPreempted, model, id, {});
  }
  void Resumed(uint32_t model, RequestId id) {
    if (on()) Record(TraceEventType::kResumed, model, id, {});
  }
  void Finished(uint32_t model, RequestId id, FinishReason reason,
                int64_t generated_tokens) {
    if (!on()) return;
    Record(TraceEventType::kFinished, model, id,
           {static_cast<int64_t>(reason), generated_tokens});
  }

 private:
  using Values = std::array<int64_t, TraceEvent::kNumValues>;

  void Record(TraceEventType type, uint32_t model, uint64_t id,
              const Values& values);
  void RecordStep(uint32_t model, const TraceStep& step);
  void Push(const TraceEvent& event);
  // Puts `ring` in place of the one that was; empty: off.
  TraceLog Exchange(std::vector<TraceEvent> ring);

  std::atomic<bool> on_{false};
  Mutex control_mu_;  // one Start(), Take() or Stop() at a time; before mu_
  Mutex mu_;
  std::vector<TraceEvent> ring_ ABSL_GUARDED_BY(mu_);  // empty: off
  uint64_t num_recorded_ ABSL_GUARDED_BY(mu_) = 0;  // modulo size: goes there
  uint64_t num_lost_ ABSL_GUARDED_BY(mu_) = 0;  // before those were recorded
  SteadyTime begin_ ABSL_GUARDED_BY(mu_);
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_TRACE_H_
