// Planning one step over the queues: who computes how many tokens, and whose KV
// makes room for it. Knows the queues and the ledger; keeps nothing between
// steps.
#ifndef INLAY_SCHED_PLANNER_H_
#define INLAY_SCHED_PLANNER_H_

#include <cstdint>
#include <vector>

#include "sched/block_ledger.h"
#include "sched/config.h"
#include "sched/cost_model.h"
#include "sched/fair_share.h"
#include "sched/kv_owner.h"
#include "sched/queues.h"
#include "sched/step_plan.h"

namespace inlay {

// What the passes of one plan share.
struct PlanContext {
  const SchedulerConfig& config;
  const PlanInput& input;
  const CostModel& cost;
  KvOwner* owner;
  Queues* queues;
  BlockLedger* ledger;
  FairShare* shares;
  StepPlan* plan;
  std::vector<SchedEntry*>* scratch;  // reused
  int64_t budget = 0;                 // tokens of the step not given out yet
  bool prefill_due = false;           // it got nothing for long: now it must
  int64_t due_position = 0;  // from which the prefill goes on that may be due
  bool out_of_time = false;  // something was left out for want of time
  bool plan_has_decodes = false;
  bool prefill_given = false;
  bool prefill_waits = false;  // a running one was left out for want of time
  bool prefill_late = false;   // it got nothing in this step, for want of time
  bool loads = false;          // blocks may come to somebody
  bool parks = false;          // somebody is passed by from now on
  int64_t num_aside = 0;       // blocks set aside for who was looked at last
  bool frees_aside = false;    // who was let in had some
  int32_t num_preempted_running = 0;
};

// Makes room in the ledger for num_tokens more tokens of the running `entry`:
// running requests that rank below it are preempted, the last in rank first.
// False, with nothing changed, when even all of them are not enough. What turns
// out not to help is left alone. O(1) when there is room.
bool MakeRoom(SchedEntry* entry, int64_t num_tokens, PlanContext* context);

// Makes room for admitting the waiting `head` with `chunk` tokens past what is
// cached of it, and a place where all are taken: preempts running requests
// whose class is below its own. The last in rank must be one when there is no
// place. The tokens to take from the cache, or -1, with nothing changed.
int64_t MakeRoomToAdmit(const SchedEntry* head, int64_t chunk,
                        PlanContext* context);

// `entry` runs no more in this plan: its KV goes, it waits.
void Preempt(SchedEntry* entry, PlanContext* context);

// Fills the plan (empty before, its vectors reused) and moves the requests;
// `scheduled` gets the entry of each item.
void PlanStep(PlanContext* context, std::vector<SchedEntry*>* scheduled);

}  // namespace inlay

#endif  // INLAY_SCHED_PLANNER_H_
