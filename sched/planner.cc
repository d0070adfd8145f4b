// The passes of one plan: decodes, running prefills, admissions. A pass goes in
// rank order and only ever takes KV from requests that rank below the one it
// serves, so the first in rank always gets on: alone it fits (Submit() saw to
// that).
#include "sched/planner.h"

#include <algorithm>

namespace inlay {
namespace {

void Give(SchedEntry* entry, int64_t num_tokens, PlanContext* context) {
  entry->planned_tokens = static_cast<int32_t>(num_tokens);
  entry->planned_blocks = context->ledger->Need(entry->request, num_tokens);
  context->ledger->Claim(entry->planned_blocks);
  context->budget -= num_tokens;
  context->plan->shape.Add(entry->request.num_computed,
                           static_cast<int32_t>(num_tokens));
}

void TakeBack(SchedEntry* entry, PlanContext* context) {
  context->ledger->Unclaim(entry->planned_blocks);
  context->budget += entry->planned_tokens;
  entry->planned_tokens = 0;
  entry->planned_blocks = 0;
}

// Whether there is time for one more decode. Where prefill is due, half of the
// step is left to it, and at least what its first token takes.
bool DecodeFitsTime(const SchedRequest& request, const PlanContext& context) {
  const auto limit = static_cast<double>(context.input.budget_us);
  if (limit == 0) return true;
  StepShape with = context.plan->shape;
  with.Add(request.num_computed, 1);
  if (!context.prefill_due) {
    if (context.cost.BoundUs(with) <= limit) return true;
    // A step of nothing is no step: the first gets on whatever it costs.
    return context.input.must_progress && context.plan->shape.num_tokens == 0;
  }
  if (context.cost.BoundUs(with) > limit / 2) return false;
  with.Add(context.due_position, 1);
  return context.cost.BoundUs(with) <= limit;
}

// When not all decodes fit the time, those that waited longest go first;
// priority still comes before that.
void OrderByTurn(std::vector<SchedEntry*>* entries) {
  std::stable_sort(entries->begin(), entries->end(),
                   [](const SchedEntry* a, const SchedEntry* b) {
                     if (ClassAbove(a->request, b->request)) return true;
                     if (ClassAbove(b->request, a->request)) return false;
                     return a->request.last_step < b->request.last_step;
                   });
}

// For blocks that come beside the step; a claim like that of tokens, so that it
// goes with whoever is preempted.
void KeepRoomToLoad(SchedEntry* entry, PlanContext* context) {
  entry->may_load = true;
  entry->planned_blocks = entry->request.num_coming;
  context->ledger->Claim(entry->planned_blocks);
}

// One token each, or room for what is to come. One that finds no block and
// nobody below it to take it from keeps its KV and sits the step out.
void PlanDecodes(PlanContext* context) {
  // By index: MakeRoom() may remove entries behind this one.
  const std::vector<SchedEntry*>& running = context->queues->running();
  for (size_t i = 0; i < running.size(); ++i) {
    SchedEntry* entry = running[i];
    const bool loads = !CanCompute(entry->request);
    entry->may_load = false;
    if (!loads && !IsDecode(entry->request)) continue;
    if (!MakeRoom(entry, loads ? 0 : 1, context)) {
      ++context->plan->num_blocked;
    } else if (loads) {
      KeepRoomToLoad(entry, context);
    } else {
      Give(entry, 1, context);
    }
  }
}

// The same within the time there is. Blocks are given out as above; then those
// whose turn it is not give theirs back.
void LimitDecodes(PlanContext* context) {
  const auto limit = static_cast<double>(context->input.budget_us);
  if (!context->prefill_due &&
      context->cost.BoundUs(context->plan->shape) <= limit)
    return;
  std::vector<SchedEntry*>& given = *context->scratch;
  given.clear();
  bool prefills = false;
  for (SchedEntry* entry : context->queues->running()) {
    if (entry->planned_tokens > 0) {
      given.push_back(entry);
    } else if (!prefills && CanCompute(entry->request) &&
               !IsDecode(entry->request)) {
      prefills = true;
      context->due_position = entry->request.num_computed;
    }
  }
  context->prefill_due &= prefills || !context->queues->waiting().empty();
  context->plan->shape = StepShape();
  OrderByTurn(&given);
  for (SchedEntry* entry : given) {
    if (DecodeFitsTime(entry->request, *context)) {
      context->plan->shape.Add(entry->request.num_computed, 1);
    } else {
      TakeBack(entry, context);
      context->out_of_time = true;
    }
  }
}

// Tokens of prefill (0 .. chunk) that the step has time for.
int32_t ChunkInTime(int64_t first_token, int32_t chunk, PlanContext* context) {
  const StepShape& shape = context->plan->shape;
  const auto tokens_within = [&](int32_t most, int64_t limit_us,
                                 CostLevel level) {
    return context->cost.MaxTokens(shape, first_token, most,
                                   static_cast<double>(limit_us), level);
  };
  const int64_t budget = context->input.budget_us;
  int64_t limit = budget;
  // Those decodes may all have been preempted since.
  if (context->plan_has_decodes && shape.num_tokens > 0 &&
      context->config.tpot_target_us > 0) {
    const int64_t target = context->config.tpot_target_us;
    limit = budget > 0 ? std::min(budget, target) : target;
  }
  if (limit == 0) return chunk;
  int32_t tokens = tokens_within(chunk, limit, CostLevel::kBound);
  const KvGroups& groups = context->config.groups;
  const KvGroup& group =
      groups.back().is_state ? groups.front() : groups.back();
  const int32_t least = std::min(chunk, group.block_size);
  if (tokens == 0 && shape.num_tokens == 0 && context->input.must_progress) {
    // Nothing is sure to be done in time: what is expected to be, or a token.
    tokens = std::max(1, tokens_within(least, limit, CostLevel::kExpected));
  } else if (tokens == 0 && context->prefill_due) {
    // Decodes alone may leave no time at all, step after step. The target gives
    // way then; DecodeFitsTime() has left some of the budget.
    tokens =
        budget > 0 ? tokens_within(least, budget, CostLevel::kBound) : least;
  }
  if (tokens > 0) return tokens;
  context->out_of_time = true;
  context->prefill_late |= !context->prefill_given;
  return 0;
}

// The same of a request: no part of one that is computed whole. A step that has
// to give something gives all of that.
int32_t ChunkInTime(const SchedRequest& request, int64_t first_token,
                    int32_t chunk, PlanContext* context) {
  const int32_t tokens = ChunkInTime(first_token, chunk, context);
  if (!request.whole || tokens == 0 || tokens == chunk) return tokens;
  if (context->plan->shape.num_tokens == 0 && context->input.must_progress)
    return chunk;
  context->out_of_time = true;
  return 0;
}

// A whole chunk if there is room for it, else what fits, and only for the sake
// of the very first token does somebody below stop running.
int64_t RoomForChunk(SchedEntry* entry, int64_t chunk, PlanContext* context) {
  if (context->ledger->Fits(entry->request, chunk)) return chunk;
  const bool whole = entry->request.whole;
  if (!MakeRoom(entry, whole ? chunk : 1, context)) return 0;
  return context->ledger->MaxFitting(entry->request, chunk);
}

// Only the first prefill of a step may be due: false once one was given tokens.
void GivePrefill(SchedEntry* entry, int64_t tokens, PlanContext* context) {
  Give(entry, tokens, context);
  context->prefill_given = true;
  context->prefill_due = false;
}

bool RefusedLately(const SchedEntry& head, const PlanContext& context) {
  constexpr uint64_t kSteps = 16;
  return head.refused_available >= context.ledger->num_available() &&
         context.plan->step < head.refused_step + kSteps &&
         !head.request.starved && context.plan->shape.num_tokens > 0;
}

// Those that do not fit the cache as large as it is now wait until it has grown
// again, and hold up nobody meanwhile; nor do those that are parked.
bool MayHead(const SchedEntry& entry, const PlanContext& context) {
  return !entry.parked && PeakKvBlocks(entry.request, context.config) <=
                              context.ledger->num_total();
}

// The first in the queue. Null: none.
SchedEntry* Head(const PlanContext& context) {
  for (SchedEntry* entry : context.queues->waiting()) {
    if (MayHead(*entry, context)) return entry;
  }
  return nullptr;
}

// Lets the first in the queue in, if it can be.
bool AdmitHead(SchedEntry* head, PlanContext* context) {
  // There was no time for one that goes before it. There may be for the
  // beginning of a prompt, which is cheap: taking that would make the other
  // wait for ever.
  if (context->prefill_waits) return false;
  Queues* queues = context->queues;
  const std::vector<SchedEntry*>& running = queues->running();
  // Blocks are short for those who run already: a newcomer would only take what
  // they miss, unless it goes before them.
  const bool short_of_blocks =
      context->plan->num_blocked > 0 || context->num_preempted_running > 0;
  if (short_of_blocks && !running.empty() && !head->request.reserved &&
      !ClassAbove(head->request, running.back()->request))
    return false;
  const bool full =
      running.size() >= static_cast<size_t>(context->config.max_running);
  if (full && !ClassAbove(head->request, running.back()->request)) return false;
  if (RefusedLately(*head, *context)) return false;
  // Without regard to what is cached: an upper bound that is cheap to have.
  const int32_t most =
      ChunkTokens(head->request, context->budget, context->config);
  if (ChunkInTime(head->request, 0, most, context) == 0) return false;
  const int64_t cached = MakeRoomToAdmit(head, most, context);
  if (cached < 0) {
    head->refused_step = context->plan->step;
    head->refused_available = context->ledger->num_available();
    return false;
  }
  SchedRequest& request = head->request;
  const KvTaken taken = context->owner->Take(request, cached);
  request.num_computed = taken.num_tokens;
  request.num_coming = taken.num_coming;
  // What is cached costs no turn; what a preempted one finds again was paid.
  if (request.state == RequestState::kWaiting)
    context->shares->Charge(request.share_key, -request.num_computed);
  queues->Admit(head);
  context->frees_aside |= context->num_aside > 0;
  context->shares->Advance(request.share_tag);
  if (!CanCompute(request)) {
    KeepRoomToLoad(head, context);
    return true;
  }
  if (IsDecode(request)) {
    const bool in_time = DecodeFitsTime(request, *context);
    if (in_time) Give(head, 1, context);
    context->out_of_time |= !in_time;
    return true;
  }
  const int32_t chunk = ChunkInTime(
      request, request.num_computed,
      ChunkTokens(request, context->budget, context->config), context);
  context->prefill_waits |= chunk == 0;
  const int64_t tokens = context->ledger->MaxFitting(request, chunk);
  // One that is computed whole waits for all of its room.
  if (tokens > 0 && (tokens == chunk || !request.whole))
    GivePrefill(head, tokens, context);
  return true;
}

// One that runs already goes before newcomers, but for those of a higher class.
void PlanPrefills(PlanContext* context) {
  const std::vector<SchedEntry*>& running = context->queues->running();
  bool refused = false;
  for (size_t i = 0; i < running.size() && context->budget > 0;) {
    SchedEntry* entry = running[i];
    const SchedRequest& request = entry->request;
    if (IsDecode(request) || !CanCompute(request)) {
      ++i;
      continue;
    }
    SchedEntry* head = refused ? nullptr : Head(*context);
    if (head != nullptr && ClassAbove(head->request, request)) {
      refused = !AdmitHead(head, context);
      // Where the entry is now, or was.
      i = static_cast<size_t>(
          std::lower_bound(running.begin(), running.end(), entry, RankOrder()) -
          running.begin());
    } else {
      const int32_t chunk = ChunkInTime(
          request, request.num_computed,
          ChunkTokens(request, context->budget, context->config), context);
      if (chunk == 0) {
        context->prefill_waits = true;
        return;
      }
      const int64_t tokens = RoomForChunk(entry, chunk, context);
      if (tokens > 0) {
        GivePrefill(entry, tokens, context);
      } else {
        ++context->plan->num_blocked;
        // Those behind it would take what it waits for.
        if (request.whole) {
          context->prefill_waits = true;
          return;
        }
      }
      ++i;
    }
  }
}

// Nobody runs, and `head` was refused all the same: others hold what it needs
// (pins, blocks set aside), for as long as they like. The first behind it that
// can be let in is, if there is one.
bool PassBy(SchedEntry* head, PlanContext* context) {
  const Queues::Waiting& waiting = context->queues->waiting();
  for (auto at = waiting.find(head); at != waiting.end();) {
    SchedEntry* const entry = *at++;
    if (!MayHead(*entry, *context)) continue;
    if (entry != head && AdmitHead(entry, context)) return true;
    // There may be no time for it.
    if (entry->refused_step != context->plan->step) return false;
    entry->parked = context->parks = true;
  }
  return false;
}

// Strictly in rank order: one that does not fit holds up those behind it, or a
// long prompt would never get in.
void PlanAdmissions(PlanContext* context) {
  const Queues::Waiting& reserved = context->queues->reserved();
  while (context->budget > 0 && !reserved.empty()) {
    SchedEntry* const head = *reserved.begin();
    if (head->parked || !AdmitHead(head, context)) break;
  }
  while (context->budget > 0) {
    SchedEntry* head = Head(*context);
    if (head == nullptr) return;
    if (AdmitHead(head, context)) continue;
    if (!context->queues->running().empty() || !PassBy(head, context)) return;
  }
}

// Prefill that was due and found no room has left the step empty.
void PlanAnyDecode(PlanContext* context) {
  for (SchedEntry* entry : context->queues->running()) {
    if (!CanCompute(entry->request) || !IsDecode(entry->request) ||
        !context->ledger->Fits(entry->request, 1))
      continue;
    Give(entry, 1, context);
    return;
  }
}

void AddItem(SchedEntry* entry, StepPlan* plan,
             std::vector<SchedEntry*>* scheduled) {
  const SchedRequest& request = entry->request;
  plan->items.push_back({request.id, request.num_computed,
                         entry->planned_tokens,
                         entry->planned_tokens == request.pending()});
  const auto prompt = static_cast<int32_t>(
      std::clamp<int64_t>(request.num_prompt_tokens - request.num_computed, 0,
                          entry->planned_tokens));
  plan->prefill_tokens += prompt;
  plan->decode_tokens += entry->planned_tokens - prompt;
  scheduled->push_back(entry);
  entry->in_flight = true;
}

void AddItems(PlanContext* context, std::vector<SchedEntry*>* scheduled) {
  StepPlan* plan = context->plan;
  for (SchedEntry* entry : context->queues->running()) {
    if (entry->planned_tokens == 0 || !IsDecode(entry->request)) continue;
    AddItem(entry, plan, scheduled);
  }
  for (SchedEntry* entry : context->queues->running()) {
    if (entry->planned_tokens == 0 || IsDecode(entry->request)) continue;
    AddItem(entry, plan, scheduled);
  }
}

}  // namespace

void PlanStep(PlanContext* context, std::vector<SchedEntry*>* scheduled) {
  context->budget = context->config.max_batch_tokens;
  PlanDecodes(context);
  if (context->input.budget_us > 0) LimitDecodes(context);
  context->plan_has_decodes = context->plan->shape.num_tokens > 0;
  if (!context->input.decodes_only) {
    PlanPrefills(context);
    PlanAdmissions(context);
  }
  if (context->out_of_time && context->input.must_progress &&
      context->plan->shape.num_tokens == 0)
    PlanAnyDecode(context);
  AddItems(context, scheduled);
  // Between plans nobody has a claim.
  for (SchedEntry* entry : context->queues->running()) {
    if (CanCompute(entry->request)) continue;
    entry->planned_blocks = 0;
    context->loads |= entry->may_load;
  }
  context->plan->predicted_us = context->cost.PredictUs(context->plan->shape);
}

}  // namespace inlay
