// Choosing whose KV goes. A choice is tried in the ledger first and carried out
// only when it is enough, so that nobody loses KV for a request that does not
// fit anyway. What the cache holds needs no choosing: it counts as available.
#include <algorithm>

#include "sched/planner.h"

namespace inlay {
namespace {

void Try(const SchedEntry& victim, PlanContext* context) {
  context->ledger->Try(*victim.request.tables);
  context->ledger->Unclaim(victim.planned_blocks);
}

void Undo(const SchedEntry& victim, PlanContext* context) {
  context->ledger->UndoTry(*victim.request.tables);
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
// (the last) are spared first; the first `wanted` are not.
template <typename Fits>
void SpareTheUseless(size_t wanted, const Fits& fits, PlanContext* context) {
  std::vector<SchedEntry*>& victims = *context->scratch;
  for (size_t i = victims.size(); i-- > wanted;) {
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
// cache, where `held` blocks are in use anyway.
Admission Cost(const SchedRequest& request, int64_t cached, int64_t held,
               int64_t chunk, const SchedulerConfig& config) {
  SchedRequest then = request;
  then.num_computed = cached;
  chunk = std::min(chunk, then.pending());
  int64_t need = -held;
  for (const KvGroup& group : config.groups) {
    const int64_t tokens = cached + AdmissionTokens(then, chunk, group);
    // A partly filled block is shared: its next token goes to a copy.
    const int64_t copy = cached % group.block_size != 0 ? 1 : 0;
    need += KvBlocksFor(tokens, group.block_size) + copy;
  }
  return {cached, need};
}

// What is cached, or as much of it as there is room for: what is taken needs no
// computing, but it uses up blocks as computing it would, half a block even
// two.
Admission MostThatFits(const SchedRequest& request, int64_t chunk,
                       PlanContext* context) {
  const SchedulerConfig& config = context->config;
  const PrefixHit hit = context->owner->Peek(request);
  context->num_aside = hit.num_aside;
  const int64_t available = context->ledger->num_available();
  const Admission all = Cost(request, hit.num_tokens,
                             hit.num_held + hit.num_aside, chunk, config);
  // With a window, less of it may need blocks that all of it does not.
  const KvGroup& group = config.groups.front();
  if (all.need <= available || config.groups.size() > 1 || group.window > 0)
    return all;
  // Whoever holds a block holds those before it: the held ones come first.
  const int32_t block_size = group.block_size;
  const int64_t full = hit.num_tokens / block_size;
  const int64_t most =
      hit.num_held + hit.num_aside + available - KvBlocksFor(chunk, block_size);
  for (const int64_t blocks : {full, std::clamp<int64_t>(most, 0, full)}) {
    const Admission part =
        Cost(request, blocks * block_size,
             std::min(hit.num_held, blocks) + hit.num_aside, chunk, config);
    if (part.need <= available) return part;
  }
  return all;
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
  SpareTheUseless(0, fits, context);
  PreemptAll(context);
  return true;
}

int64_t MakeRoomToAdmit(const SchedEntry* head, int64_t chunk,
                        PlanContext* context) {
  const std::vector<SchedEntry*>& running = context->queues->running();
  const bool full =
      running.size() >= static_cast<size_t>(context->config.max_running);
  Admission admission = MostThatFits(head->request, chunk, context);
  const auto fits = [&] {
    return admission.need <= context->ledger->num_available();
  };
  if (fits()) {
    if (!full) return admission.cached;
    // What of the cached it holds alone becomes available as it goes, and is
    // needed then: the sum is the same.
    Preempt(running.back(), context);
  } else {
    // Blocks that victims share with the head are counted as in use by others
    // until they go: without the cache the count is safe.
    admission = Cost(head->request, 0, 0, chunk, context->config);
    const auto below = [&](const SchedEntry& last) {
      return ClassAbove(head->request, last.request);
    };
    context->scratch->clear();
    if (!fits() && !TryUntil(below, fits, context)) {
      UndoAll(context);
      return -1;
    }
    if (full && context->scratch->empty())
      TryUntil(
          below, [] { return true; }, context);
    SpareTheUseless(full ? 1 : 0, fits, context);
    PreemptAll(context);
  }
  const Admission after = MostThatFits(head->request, chunk, context);
  return after.need <= context->ledger->num_available() ? after.cached : 0;
}

}  // namespace inlay
