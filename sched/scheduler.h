// Scheduler: which tokens of which requests the next step computes.
// Owns the requests' scheduling state; knows no models, devices, token values
// or KV data. Sources: iteration-level scheduling (Orca, Yu et al., 2022),
// chunked prefill beside decodes (Sarathi-Serve, Agrawal et al., 2024),
// preemption by recomputation (PagedAttention, Kwon et al., 2023), start-time
// fair queueing (fair_share.h).
#ifndef INLAY_SCHED_SCHEDULER_H_
#define INLAY_SCHED_SCHEDULER_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "memory/kv/block_pool.h"
#include "sched/block_ledger.h"
#include "sched/config.h"
#include "sched/cost_model.h"
#include "sched/fair_share.h"
#include "sched/kv_owner.h"
#include "sched/planner.h"
#include "sched/queues.h"
#include "sched/request.h"
#include "sched/step_plan.h"

namespace inlay {

// A step is Plan(), the engine's work, Commit(). Every block in the pool must
// be evictable or belong to the tables of a request held here, but for what the
// host keeps away on purpose: only then can the scheduler take it back, and
// only then does every request end. Thread-compatible: the engine's step thread
// owns it.
class Scheduler {
 public:
  // `pool` and `owner` are not owned and must outlive the scheduler.
  // INVALID_ARGUMENT: a limit out of its range.
  static absl::StatusOr<std::unique_ptr<Scheduler>> Create(
      const SchedulerConfig& config, const KvBlockPool* pool, KvOwner* owner);

  // Queues a request. Its tables must be empty and are not touched by others
  // until the request ends. RESOURCE_EXHAUSTED: the queue is full, or its KV
  // could not fit even alone; INVALID_ARGUMENT: counts out of range, an id in
  // use, tables of other groups.
  absl::Status Submit(const SchedRequest& request);

  // The request leaves: at once, or, if the plan in flight has it, at Commit(),
  // whatever its result there. Its tables are not looked at any more.
  // NOT_FOUND: no such request.
  absl::Status Cancel(RequestId id);

  // The next step. Valid until the next Plan() that follows its Commit();
  // before that, Plan() returns the same plan again. A plan without items needs
  // no Commit().
  const StepPlan& Plan(const PlanInput& input);
  // results[i] tells of plan.items[i]. A request that has no tokens left to
  // generate ends like a finished one. elapsed_us: what computing the step
  // took, for the cost model; < 0: not known. FAILED_PRECONDITION: not the plan
  // in flight; INVALID_ARGUMENT: results that contradict it; nothing changes
  // then.
  absl::Status Commit(const StepPlan& plan,
                      absl::Span<const StepResult> results,
                      double elapsed_us = -1);

  // Preempts running requests, the last in rank first, until tables hold at
  // most `max_held` blocks; how many. Only while no plan is in flight.
  int PreemptTo(int64_t max_held, int64_t now_us);

  // Requests whose KV comes from elsewhere (KvTaken) run, but are in no plan
  // until it is there: the first in rank that the last plan kept room for;
  // null: none.
  const SchedRequest* NextToLoad() const;
  // Blocks of all of them that are still to come.
  int64_t num_coming() const;
  // What such a request has now: no more tokens than before, fewer where some
  // could not be had. Only while it is in no plan in flight.
  void SetComing(RequestId id, const KvTaken& now);
  // There was no room after all: not before the next plan.
  void WaitToLoad(RequestId id);

  // False also when the last plan had nothing in it and nothing has happened
  // since: all that is left waits for blocks that others hold.
  bool HasWork() const { return !requests_.empty() && !stalled_; }
  bool empty() const { return requests_.empty(); }
  // No request will count against `key` any more.
  void ForgetShare(uint64_t key) { shares_.Forget(key); }
  // Blocks may have become available otherwise than by requests.
  void Retry();
  // Whether the last plan was empty for want of blocks.
  bool stalled() const { return stalled_; }
  size_t num_waiting() const { return queues_.waiting().size(); }
  size_t num_running() const { return queues_.running().size(); }
  // Null: no such request. Valid until the request ends.
  const SchedRequest* Find(RequestId id) const;

  const SchedulerConfig& config() const { return config_; }
  // When a request of num_tokens tokens, num_cached of them cached, would give
  // its first token, submitted now behind what is here.
  uint64_t EstimateFirstTokenUs(int64_t num_cached, int64_t num_tokens) const;
  const Queues& queues() const { return queues_; }
  const CostModel& cost() const { return cost_; }
  // Null when every plan is committed.
  const StepPlan* plan_in_flight() const {
    return scheduled_.empty() ? nullptr : &plan_;
  }

 private:
  Scheduler(const SchedulerConfig& config, const KvBlockPool* pool,
            KvOwner* owner);
  void Expire(int64_t now_us);
  bool Park(PlanContext* context);
  absl::Status CheckResult(size_t index, const StepResult& result) const;
  void ApplyResult(SchedEntry* entry, const StepItem& item,
                   const StepResult& result);

  const SchedulerConfig config_;
  const KvBlockPool* const pool_;
  KvOwner* const owner_;
  int32_t most_blocks_;  // that the pool ever had: it may have them again
  std::unordered_map<RequestId, std::unique_ptr<SchedEntry>> requests_;
  Queues queues_;
  FairShare shares_;
  CostModel cost_;
  uint64_t next_arrival_ = 0;
  bool stalled_ = false;
  bool any_parked_ = false;
  bool frees_aside_ = false;  // the last plan let in who had blocks set aside
  int32_t steps_without_prefill_ = 0;  // for want of time

  BlockLedger ledger_;
  StepPlan plan_;
  std::vector<SchedEntry*> scheduled_;  // of plan_.items, until it is committed
  std::vector<SchedEntry*> scratch_;    // of Plan()
};

}  // namespace inlay

#endif  // INLAY_SCHED_SCHEDULER_H_
