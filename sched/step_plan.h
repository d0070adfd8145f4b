// StepPlan: what one engine step is to do, and StepResult: what it did.
// Plain data; all a plan's reader needs to know of the scheduler.
#ifndef INLAY_SCHED_STEP_PLAN_H_
#define INLAY_SCHED_STEP_PLAN_H_

#include <cstdint>
#include <vector>

#include "sched/cost_model.h"
#include "sched/request.h"

namespace inlay {

// Tokens [first_token, first_token + num_tokens) of one request are to be
// computed.
struct StepItem {
  RequestId id;
  int64_t first_token;  // the request's num_computed
  int32_t num_tokens;   // >= 1
  bool samples;  // its last token is the last known one: the next is sampled
                 // from its logits
};

// What planning a step depends on besides the requests.
struct PlanInput {
  int64_t now_us = 0;
  int64_t budget_us = 0;  // the step should take no longer; 0: no limit
  // Something is planned even if its least does not fit the budget.
  bool must_progress = true;
  // Nothing but decodes of running requests: such a step has begun already.
  bool decodes_only = false;
};

// The engine first ends `expired`, then reserves KV for every item, in any
// order; without faults all of them fit. No table may be forked between Plan()
// and the reservations.
struct StepPlan {
  uint64_t step = 0;
  std::vector<StepItem> items;  // those of one pending token (decodes) first,
                                // each group in rank order
  std::vector<RequestId> preempted;  // their KV went (KvOwner::Drop) and they
                                     // wait again
  std::vector<RequestId> expired;    // past their deadline: their KV went too,
                                     // and the scheduler knows them no more
  int32_t decode_tokens = 0;         // of items that had one token pending
  int32_t prefill_tokens = 0;        // of the others
  int32_t num_blocked =
      0;  // running requests left out of this step for want of KV blocks
  StepShape shape;
  double predicted_us = 0;  // what the step is expected to take

  bool empty() const { return items.empty(); }
};

// What became of the item with the same index.
struct StepResult {
  int32_t tokens_appended = 0;  // 0 or 1; 1 only where the item samples
  bool finished = false;        // the request ends here, whatever the reason
  bool computed = true;  // false: the item failed and left no trace; it is
                         // planned again unless finished
};

}  // namespace inlay

#endif  // INLAY_SCHED_STEP_PLAN_H_
