// Queues: where every request stands, and the state changes that move it.
// Owns the order; the requests themselves belong to the Scheduler. Decides
// nothing.
#ifndef INLAY_SCHED_QUEUES_H_
#define INLAY_SCHED_QUEUES_H_

#include <set>
#include <vector>

#include "sched/idle_sessions.h"
#include "sched/policy.h"
#include "sched/request.h"

namespace inlay {

// A request and what the step being planned gives to it.
struct SchedEntry {
  SchedRequest request;
  int32_t planned_tokens = 0;
  int64_t planned_blocks = 0;
  bool in_flight = false;  // has an item in the plan that is not committed yet
};

struct RankOrder {
  bool operator()(const SchedEntry* a, const SchedEntry* b) const {
    return RanksBefore(a->request, b->request);
  }
};

class Queues {
 public:
  using Waiting = std::set<SchedEntry*, RankOrder>;

  const std::vector<SchedEntry*>& running() const {
    return running_;
  }  // in rank order
  const Waiting& waiting() const { return waiting_; }
  const Waiting& waiting_with_kv() const {
    return waiting_with_kv_;
  }  // those of waiting() with num_computed > 0
  IdleSessions& idle() { return idle_; }
  const IdleSessions& idle() const { return idle_; }

  // A new request.
  void AddWaiting(SchedEntry* entry);
  // waiting -> running.
  void Admit(SchedEntry* entry);
  // running -> waiting, with nothing computed and nothing planned.
  void Preempt(SchedEntry* entry);
  // A waiting request's KV goes.
  void DropKv(SchedEntry* entry);
  // Wherever it stands, it leaves.
  void Remove(SchedEntry* entry);
  // All running requests in state kFinished leave; O(running) for any number of
  // them.
  void RemoveFinished();

 private:
  std::vector<SchedEntry*> running_;
  Waiting waiting_;
  Waiting waiting_with_kv_;
  IdleSessions idle_;
};

}  // namespace inlay

#endif  // INLAY_SCHED_QUEUES_H_
