// Choosing whose KV goes. A choice is tried in the ledger first and becomes
// part of the plan only when it is enough, so that nobody loses KV for a
// request that does not fit anyway.
#include "sched/planner.h"

namespace inlay {
namespace {

void Release(const Victim& victim, PlanContext* context) {
  if (victim.entry == nullptr)
    return context->ledger->Release(*victim.idle.table);
  context->ledger->Release(victim.entry->request);
  context->ledger->Unclaim(victim.entry->planned_blocks);
}

void Undo(const Victim& victim, PlanContext* context) {
  if (victim.entry == nullptr)
    return context->ledger->UndoRelease(*victim.idle.table);
  context->ledger->UndoRelease(victim.entry->request);
  context->ledger->Claim(victim.entry->planned_blocks);
}

// Releases in the ledger, in the order of the victims' cheapness, until there
// is room. False: there is none.
bool ReleaseUntilRoom(const SchedEntry* entry, int64_t num_tokens, Reach reach,
                      PlanContext* context) {
  const auto take = [&](const Victim& victim) {
    Release(victim, context);
    context->victims->push_back(victim);
    return context->ledger->Fits(entry->request, num_tokens);
  };
  for (const IdleSession& idle : context->queues->idle().lru()) {
    if (take({nullptr, idle})) return true;
  }
  const Queues::Waiting& waiting = context->queues->waiting_with_kv();
  for (auto it = waiting.rbegin(); it != waiting.rend(); ++it) {
    if (*it != entry && take({*it, {}})) return true;
  }
  if (reach != Reach::kRunning) return false;
  const std::vector<SchedEntry*>& running = context->queues->running();
  for (auto it = running.rbegin(); *it != entry; ++it) {
    if (take({*it, {}})) return true;
  }
  return false;
}

// A table whose blocks are all shared gives nothing back. The costliest victims
// (the last) are spared first.
void SpareTheUseless(const SchedEntry* entry, int64_t num_tokens,
                     PlanContext* context) {
  std::vector<Victim>& victims = *context->victims;
  for (size_t i = victims.size(); i-- > 0;) {
    Undo(victims[i], context);
    if (context->ledger->Fits(entry->request, num_tokens)) {
      victims.erase(victims.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      Release(victims[i], context);
    }
  }
}

void Apply(const Victim& victim, PlanContext* context) {
  if (victim.entry == nullptr) {
    context->plan->evicted_sessions.push_back(victim.idle.id);
    context->queues->idle().Remove(victim.idle.id);
    return;
  }
  context->plan->preempted.push_back(victim.entry->request.id);
  if (victim.entry->request.state == RequestState::kRunning) {
    context->budget += victim.entry->planned_tokens;
    ++context->num_preempted_running;
    context->queues->Preempt(victim.entry);
  } else {
    context->queues->DropKv(victim.entry);
  }
}

}  // namespace

bool MakeRoom(SchedEntry* entry, int64_t num_tokens, Reach reach,
              PlanContext* context) {
  if (context->ledger->Fits(entry->request, num_tokens)) return true;
  context->victims->clear();
  if (!ReleaseUntilRoom(entry, num_tokens, reach, context)) {
    for (const Victim& victim : *context->victims) Undo(victim, context);
    return false;
  }
  SpareTheUseless(entry, num_tokens, context);
  for (const Victim& victim : *context->victims) Apply(victim, context);
  return true;
}

}  // namespace inlay
