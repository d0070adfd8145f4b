// Planning one step over the queues: who computes how many tokens, and whose KV
// makes room for it. Knows the queues and the ledger; keeps nothing between
// steps.
#ifndef INLAY_SCHED_PLANNER_H_
#define INLAY_SCHED_PLANNER_H_

#include <cstdint>
#include <vector>

#include "sched/block_ledger.h"
#include "sched/config.h"
#include "sched/queues.h"
#include "sched/step_plan.h"

namespace inlay {

// Something whose KV may go: an idle session (entry is null) or a waiting or
// running request.
struct Victim {
  SchedEntry* entry;
  IdleSession idle;
};

// What the passes of one plan share.
struct PlanContext {
  const SchedulerConfig& config;
  Queues* queues;
  BlockLedger* ledger;
  StepPlan* plan;
  std::vector<Victim>* victims;  // scratch, reused
  int64_t budget = 0;            // tokens of the step not given out yet
  int32_t num_preempted_running = 0;
};

// Whose KV may go for a request.
enum class Reach {
  kCached,  // that of idle sessions and of other waiting requests: nobody stops
            // running
  kRunning,  // also that of running requests that rank below it
};

// Makes room in the ledger for num_tokens more tokens of `entry`: first idle
// sessions, least recently used first, then waiting requests, then running
// ones, the last in rank first. False, with nothing changed, when even all of
// it is not enough. What turns out not to help is left alone. O(1) when there
// is room.
bool MakeRoom(SchedEntry* entry, int64_t num_tokens, Reach reach,
              PlanContext* context);

// Fills the plan (empty before, its vectors reused) and moves the requests;
// `scheduled` gets the entry of each item.
void PlanStep(PlanContext* context, std::vector<SchedEntry*>* scheduled);

}  // namespace inlay

#endif  // INLAY_SCHED_PLANNER_H_
