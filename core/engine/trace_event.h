// TraceEvent: one thing that happened in the engine. Plain data.
#ifndef INLAY_CORE_ENGINE_TRACE_EVENT_H_
#define INLAY_CORE_ENGINE_TRACE_EVENT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/engine/clock.h"
#include "core/engine/event.h"
#include "sched/request.h"

namespace inlay {

enum class StepPhase : uint8_t {
  kPlan,
  kReserve,
  kForward,
  kSample,
  kCommit,
  kLoad  // of KV that a tier had
};
inline constexpr size_t kNumStepPhases = 6;

// A step that was done. Times are absolute; a phase that did not come about
// ends where the one before it did.
struct TraceStep {
  uint64_t step = 0;
  SteadyTime begin;
  std::array<SteadyTime, kNumStepPhases> phase_ends;
  int64_t prefill_tokens = 0;
  int64_t decode_tokens = 0;
  int64_t requests = 0;
  int64_t predicted_us = 0;  // 0: not predicted
  int64_t budget_us = 0;     // 0: none
};

// What is so after a step.
struct TraceGauges {
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t kv_used = 0;  // blocks
  int64_t kv_free = 0;
  int64_t kv_cached = 0;
};

enum class TraceEventType : uint8_t {
  kStep,        // id: the step; values as kStep* below
  kGauges,      // values: the fields of TraceGauges in order
  kEvicted,     // values: blocks
  kMemory,      // values: budget (0: none) and used bytes
  kSubmitted,   // id: the request, as below; values: prompt tokens
  kPrefixHit,   // values: tokens found, tokens looked up
  kStarted,     // values: tokens that need not be computed
  kFirstToken,  // no values
  kPreempted,   // no values
  kResumed,     // no values
  kFinished,    // values: FinishReason, tokens generated
};

struct TraceEvent {
  static constexpr size_t kNumValues = 11;

  SteadyTime time;  // of kStep: its beginning
  uint64_t id = 0;
  TraceEventType type = TraceEventType::kStep;
  uint32_t model = 0;  // tells models apart; 0 where it is of none
  std::array<int64_t, kNumValues> values = {};
};

// values of kStep: nanoseconds of each phase, then these.
inline constexpr size_t kStepPrefillTokens = kNumStepPhases;
inline constexpr size_t kStepDecodeTokens = kNumStepPhases + 1;
inline constexpr size_t kStepRequests = kNumStepPhases + 2;
inline constexpr size_t kStepPredictedUs = kNumStepPhases + 3;
inline constexpr size_t kStepBudgetUs = kNumStepPhases + 4;

// What was recorded between two times, the newest of it if there was more than
// the ring holds.
struct TraceLog {
  SteadyTime begin;
  SteadyTime end;
  uint64_t num_lost = 0;           // overwritten, all older than `events`
  std::vector<TraceEvent> events;  // in the order they were recorded
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_TRACE_EVENT_H_
