// The checks, one function a subject.
#include "sched/invariants.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sched/admission.h"
#include "sched/scheduler.h"

namespace inlay {
namespace {

template <typename... Args>
absl::Status Violated(const Args&... args) {
  return absl::InternalError(absl::StrCat("scheduler: ", args...));
}

absl::Status CheckRequest(const SchedRequest& request,
                          const Scheduler& scheduler) {
  if (scheduler.Find(request.id) != &request)
    return Violated("request ", request.id, " is queued but not known");
  if (request.num_computed < 0 || request.pending() < 1 ||
      request.max_new_tokens < 0) {
    return Violated("request ", request.id, ": ", request.num_computed, " of ",
                    request.num_tokens_total, " tokens computed, ",
                    request.max_new_tokens, " to generate");
  }
  if (request.num_tokens_total + request.max_new_tokens !=
      request.max_total_tokens) {
    return Violated("request ", request.id, ": ", request.num_tokens_total,
                    " + ", request.max_new_tokens, " tokens, were ",
                    request.max_total_tokens);
  }
  return absl::OkStatus();
}

absl::Status CheckRunning(const Scheduler& scheduler) {
  const std::vector<SchedEntry*>& running = scheduler.queues().running();
  if (running.size() > static_cast<size_t>(scheduler.config().max_running))
    return Violated(running.size(), " requests run");
  for (size_t i = 0; i < running.size(); ++i) {
    const SchedRequest& request = running[i]->request;
    INLAY_RETURN_IF_ERROR(CheckRequest(request, scheduler));
    const bool cancelled =
        request.state == RequestState::kFinished && running[i]->in_flight;
    if (request.state != RequestState::kRunning && !cancelled)
      return Violated("request ", request.id, " runs in another state");
    if (i > 0 && !RanksBefore(running[i - 1]->request, request))
      return Violated("running out of order at ", request.id);
    if (running[i]->in_flight != (running[i]->planned_tokens > 0))
      return Violated("request ", request.id, ": stale plan");
    if (!CanCompute(request) &&
        (running[i]->in_flight || running[i]->planned_blocks > 0))
      return Violated("request ", request.id, " is planned before its KV came");
  }
  return absl::OkStatus();
}

absl::Status CheckWaiting(const Scheduler& scheduler) {
  const SchedEntry* last = nullptr;
  for (const SchedEntry* entry : scheduler.queues().waiting()) {
    const SchedRequest& request = entry->request;
    INLAY_RETURN_IF_ERROR(CheckRequest(request, scheduler));
    if (request.state != RequestState::kWaiting &&
        request.state != RequestState::kPreempted) {
      return Violated("request ", request.id, " waits in another state");
    }
    if (request.num_computed > 0 || request.num_coming > 0)
      return Violated("request ", request.id, " waits and has KV");
    if (last != nullptr && !RanksBefore(last->request, request))
      return Violated("waiting out of order at ", request.id);
    if (entry->in_flight || entry->planned_tokens > 0)
      return Violated("request ", request.id, " waits and is planned");
    last = entry;
  }
  return absl::OkStatus();
}

absl::Status CheckPlan(const Scheduler& scheduler) {
  const StepPlan* plan = scheduler.plan_in_flight();
  if (plan == nullptr) return absl::OkStatus();
  int64_t tokens = 0;
  bool prefills = false;
  StepShape shape;
  for (const StepItem& item : plan->items) {
    const SchedRequest* request = scheduler.Find(item.id);
    if (request == nullptr)
      return Violated("plan: request ", item.id, " is gone");
    if (item.num_tokens < 1 || item.num_tokens > request->pending() ||
        item.first_token != request->num_computed ||
        item.samples != (item.num_tokens == request->pending())) {
      return Violated("plan: request ", item.id, ": tokens ", item.first_token,
                      " + ", item.num_tokens, ", computed ",
                      request->num_computed, " of ", request->num_tokens_total);
    }
    if (IsDecode(*request) && prefills)
      return Violated("plan: decode of ", item.id, " behind a prefill");
    prefills = !IsDecode(*request);
    tokens += item.num_tokens;
    shape.Add(item.first_token, item.num_tokens);
  }
  if (tokens > scheduler.config().max_batch_tokens ||
      tokens != plan->decode_tokens + plan->prefill_tokens) {
    return Violated("plan: ", tokens, " tokens, counted ", plan->decode_tokens,
                    " + ", plan->prefill_tokens);
  }
  if (shape.num_sequences != plan->shape.num_sequences ||
      shape.num_tokens != plan->shape.num_tokens ||
      shape.attention_pairs != plan->shape.attention_pairs) {
    return Violated("plan: its shape is that of other items");
  }
  for (RequestId id : plan->expired) {
    if (scheduler.Find(id) != nullptr)
      return Violated("plan: request ", id, " expired and is known");
  }
  return absl::OkStatus();
}

// A table has one owner, matches its request between steps, and every holder of
// a block is counted by the pool.
absl::Status CheckTables(const Scheduler& scheduler, const KvBlockPool& pool) {
  if (scheduler.plan_in_flight() != nullptr) return absl::OkStatus();
  std::set<const KvTables*> tables;
  std::vector<int32_t> holders(static_cast<size_t>(pool.end_id()), 0);
  const auto add = [&](const KvTables* of_request) {
    for (size_t g = 0; g < of_request->num_groups(); ++g) {
      for (int32_t id : of_request->group(g).blocks()) {
        if (id != KvBlockTable::kNoBlock) ++holders[static_cast<size_t>(id)];
      }
    }
    return tables.insert(of_request).second;
  };
  const auto gone_or_coming = [](const KvTables& tables) {
    int64_t count = 0;
    for (size_t g = 0; g < tables.num_groups(); ++g) {
      const auto blocks = tables.group(g).blocks();
      count += std::count(blocks.begin(), blocks.end(), KvBlockTable::kNoBlock);
    }
    return count;
  };
  const auto add_request = [&](const SchedRequest& request) -> absl::Status {
    if (request.num_coming > gone_or_coming(*request.tables)) {
      return Violated("request ", request.id, ": ", request.num_coming,
                      " blocks are to come, its tables have no place for them");
    }
    if (!add(request.tables))
      return Violated("request ", request.id, ": its tables have two owners");
    for (size_t g = 0; g < request.tables->num_groups(); ++g) {
      const int64_t tokens = request.tables->group(g).num_tokens();
      if (tokens == request.num_computed) continue;
      return Violated("request ", request.id, ": ", tokens,
                      " tokens in its table ", g, ", ", request.num_computed,
                      " computed");
    }
    return absl::OkStatus();
  };
  for (const SchedEntry* entry : scheduler.queues().running())
    INLAY_RETURN_IF_ERROR(add_request(entry->request));
  for (const SchedEntry* entry : scheduler.queues().waiting())
    INLAY_RETURN_IF_ERROR(add_request(entry->request));
  for (int32_t id = 0; id < pool.end_id(); ++id) {
    const int32_t known = holders[static_cast<size_t>(id)] +
                          (pool.RefCount(id) > 0 && pool.IsCached(id) ? 1 : 0);
    if (known > pool.RefCount(id))
      return Violated("block ", id, ": ", known, " holders, ",
                      pool.RefCount(id), " references");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckInvariants(const Scheduler& scheduler,
                             const KvBlockPool& pool) {
  INLAY_RETURN_IF_ERROR(CheckRunning(scheduler));
  INLAY_RETURN_IF_ERROR(CheckWaiting(scheduler));
  INLAY_RETURN_IF_ERROR(CheckPlan(scheduler));
  INLAY_RETURN_IF_ERROR(CheckTables(scheduler, pool));
  if (pool.num_free() + pool.num_used() != pool.num_total())
    return Violated("blocks free and used do not add up");
  return absl::OkStatus();
}

}  // namespace inlay
