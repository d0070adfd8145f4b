// Choosing whose KV goes. A choice is tried in the ledger first and carried out
// only when it is enough, so that nobody loses KV for a request that does not
// fit anyway. What the cache holds needs no choosing: it counts as available.
#include <algorithm>

#include "sched/planner.h"

namespace inlay {
namespace {

void Try(const SchedEntry& victim, PlanContext* context) {
  context->ledger->Try(*victim.request.table);
  context->ledger->Unclaim(victim.planned_blocks);
}

void Undo(const SchedEntry& victim, PlanContext* context) {
  context->ledger->UndoTry(*victim.request.table);
  context->ledger->Claim(victim.planned_blocks);
}

// Lets go on trial, the last in rank first, until there is room for `needed`
// blocks. `may_go` says where to stop.
template <typename MayGo, typename Fits>
bool TryUntil(const MayGo& may_go, const Fits& fits, PlanContext* context) {
  const std::vector<SchedEntry*>& running = context->queues->running();
  std::vector<SchedEntry*>& victims = *context->scratch;
  victims.clear();
  for (auto it = running.rbegin(); it != running.rend() && may_go(**it); ++it) {
    victims.push_back(*it);
    Try(**it, context);
    if (fits()) return true;
  }
  return false;
}

void UndoAll(PlanContext* context) {
  for (const SchedEntry* victim : *context->scratch) Undo(*victim, context);
  context->ledger->EndTrials();
}

// A table whose blocks are all shared gives nothing back. The costliest victims
// (the last) are spared first.
template <typename Fits>
void SpareTheUseless(const Fits& fits, PlanContext* context) {
  std::vector<SchedEntry*>& victims = *context->scratch;
  for (size_t i = victims.size(); i-- > 0;) {
    Undo(*victims[i], context);
    if (fits()) {
      victims.erase(victims.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      Try(*victims[i], context);
    }
  }
}

void PreemptAll(PlanContext* context) {
  for (const SchedEntry* victim : *context->scratch) Undo(*victim, context);
  context->ledger->EndTrials();
  for (SchedEntry* victim : *context->scratch) Preempt(victim, context);
}

struct Admission {
  int64_t cached = 0;  // tokens to take
  int64_t need = 0;    // available blocks that it uses up
};

// What admitting `request` takes when `cached` of its tokens come from the
// cache, where `held` of their blocks are in use anyway.
Admission Cost(const SchedRequest& request, int64_t cached, int64_t held,
               int64_t chunk, const SchedulerConfig& config) {
  SchedRequest then = request;
  then.num_computed = cached;
  chunk = std::min(chunk, then.pending());
  const int64_t tokens = cached + AdmissionTokens(then, chunk, config);
  const int32_t block_size = config.block_size;
  // A partly filled block is shared: its next token goes to a copy.
  const int64_t copy = cached % block_size != 0 ? 1 : 0;
  return {cached, KvBlocksFor(tokens, block_size) - held + copy};
}

// The cheapest way in. Half a block from the cache costs one more block for its
// copy than computing it does: where that is too much, it stays.
Admission Cheapest(const SchedRequest& request, int64_t chunk,
                   PlanContext* context) {
  const int32_t block_size = context->config.block_size;
  const PrefixHit hit = context->owner->Peek(request);
  const Admission all =
      Cost(request, hit.num_tokens, hit.num_held, chunk, context->config);
  const int64_t full = hit.num_tokens / block_size * block_size;
  if (all.need <= context->ledger->num_available() || full == hit.num_tokens)
    return all;
  // Which of the blocks are held is known in sum only; counting the part as
  // held asks for one block more than may be needed.
  const int64_t held =
      std::max<int64_t>(0, std::min(hit.num_held - 1, full / block_size));
  const Admission less = Cost(request, full, held, chunk, context->config);
  return less.need < all.need ? less : all;
}

}  // namespace

void Preempt(SchedEntry* entry, PlanContext* context) {
  context->plan->preempted.push_back(entry->request.id);
  context->budget += entry->planned_tokens;
  if (entry->planned_tokens > 0) {
    StepShape gone;
    gone.Add(entry->request.num_computed, entry->planned_tokens);
    --context->plan->shape.num_sequences;
    context->plan->shape.num_tokens -= gone.num_tokens;
    context->plan->shape.attention_pairs -= gone.attention_pairs;
  }
  context->ledger->Unclaim(entry->planned_blocks);
  ++context->num_preempted_running;
  context->owner->Drop(entry->request);
  context->queues->Preempt(entry, context->input.now_us);
}

bool MakeRoom(SchedEntry* entry, int64_t num_tokens, PlanContext* context) {
  const auto fits = [&] {
    return context->ledger->Fits(entry->request, num_tokens);
  };
  if (fits()) return true;
  if (!TryUntil([&](const SchedEntry& last) { return &last != entry; }, fits,
                context)) {
    UndoAll(context);
    return false;
  }
  SpareTheUseless(fits, context);
  PreemptAll(context);
  return true;
}

int64_t MakeRoomToAdmit(const SchedEntry* head, int64_t chunk,
                        PlanContext* context) {
  Admission admission = Cheapest(head->request, chunk, context);
  const auto fits = [&] {
    return admission.need <= context->ledger->num_available();
  };
  if (fits()) return admission.cached;
  // Blocks that victims share with the head are counted as in use by others
  // until they go: without the cache the count is safe.
  admission = Cost(head->request, 0, 0, chunk, context->config);
  context->scratch->clear();
  const auto below = [&](const SchedEntry& last) {
    return ClassAbove(head->request, last.request);
  };
  if (!fits() && !TryUntil(below, fits, context)) {
    UndoAll(context);
    return -1;
  }
  if (!context->scratch->empty()) {
    SpareTheUseless(fits, context);
    PreemptAll(context);
  }
  const Admission after = Cheapest(head->request, chunk, context);
  return after.need <= context->ledger->num_available() ? after.cached : 0;
}

}  // namespace inlay
