// Queues: where every request stands, and the state changes that move it.
// Owns the order; the requests themselves belong to the Scheduler. Decides
// nothing.
#ifndef INLAY_SCHED_QUEUES_H_
#define INLAY_SCHED_QUEUES_H_

#include <set>
#include <vector>

#include "sched/policy.h"
#include "sched/request.h"

namespace inlay {

// A request and what the step being planned gives to it.
struct SchedEntry {
  SchedRequest request;
  int32_t planned_tokens = 0;
  int64_t planned_blocks = 0;
  bool may_load = false;   // there is room for the blocks that are to come
  bool in_flight = false;  // has an item in the plan that is not committed yet
  // It waits for what nobody has who runs, and holds up nobody until something
  // happens (Scheduler::Retry).
  bool parked = false;
  // When it was last refused, and how many blocks were available then: looking
  // up what is cached of a long prompt again and again would cost every step.
  uint64_t refused_step = 0;
  int64_t refused_available = -1;
};

struct RankOrder {
  bool operator()(const SchedEntry* a, const SchedEntry* b) const {
    return RanksBefore(a->request, b->request);
  }
};

// Who has waited longest comes first.
struct WaitOrder {
  bool operator()(const SchedEntry* a, const SchedEntry* b) const {
    const SchedRequest& x = a->request;
    const SchedRequest& y = b->request;
    return x.waiting_since_us != y.waiting_since_us
               ? x.waiting_since_us < y.waiting_since_us
               : x.arrival < y.arrival;
  }
};

struct DeadlineOrder {
  bool operator()(const SchedEntry* a, const SchedEntry* b) const {
    const SchedRequest& x = a->request;
    const SchedRequest& y = b->request;
    return x.deadline_us != y.deadline_us ? x.deadline_us < y.deadline_us
                                          : x.arrival < y.arrival;
  }
};

class Queues {
 public:
  using Waiting = std::set<SchedEntry*, RankOrder>;

  const std::vector<SchedEntry*>& running() const {
    return running_;
  }  // in rank order
  const Waiting& waiting() const { return waiting_; }
  // Of waiting(), those with blocks set aside.
  const Waiting& reserved() const { return reserved_; }

  // A new request. May throw std::bad_alloc, with nothing changed.
  void AddWaiting(SchedEntry* entry);
  // waiting -> running.
  void Admit(SchedEntry* entry);
  // running -> waiting, with nothing computed and nothing planned.
  void Preempt(SchedEntry* entry, int64_t now_us);
  // Those that wait since before `since_us` are starved from now on.
  void PromoteStarved(int64_t since_us);
  // The one with the earliest deadline, if that is before now_us; else null.
  SchedEntry* Expired(int64_t now_us) const;
  // Wherever it stands, it leaves.
  void Remove(SchedEntry* entry);
  // All running requests in state kFinished leave; O(running) for any number of
  // them.
  void RemoveFinished();

 private:
  void StartWaiting(SchedEntry* entry);
  void StopWaiting(SchedEntry* entry);

  std::vector<SchedEntry*> running_;
  Waiting waiting_;
  Waiting reserved_;
  std::set<SchedEntry*, WaitOrder> by_wait_;  // of waiting_, the not starved
  std::set<SchedEntry*, DeadlineOrder> by_deadline_;  // all that have one
};

}  // namespace inlay

#endif  // INLAY_SCHED_QUEUES_H_
