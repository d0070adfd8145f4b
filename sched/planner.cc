// The passes of one plan: decodes, running prefills, admissions. A pass goes in
// rank order and only ever takes KV from requests that rank below the one it
// serves, so the first in rank always gets on: alone it fits (Submit() saw to
// that).
#include "sched/planner.h"

namespace inlay {
namespace {

void Give(SchedEntry* entry, int64_t num_tokens, PlanContext* context) {
  entry->planned_tokens = static_cast<int32_t>(num_tokens);
  entry->planned_blocks = context->ledger->Need(entry->request, num_tokens);
  context->ledger->Claim(entry->planned_blocks);
  context->budget -= num_tokens;
}

// One token each. One that finds no block and nobody below it to take it from
// keeps its KV and sits the step out.
void PlanDecodes(PlanContext* context) {
  // By index: MakeRoom() may remove entries behind this one.
  const std::vector<SchedEntry*>& running = context->queues->running();
  for (size_t i = 0; i < running.size(); ++i) {
    if (!IsDecode(running[i]->request)) continue;
    if (MakeRoom(running[i], 1, Reach::kRunning, context)) {
      Give(running[i], 1, context);
    } else {
      ++context->plan->num_blocked;
    }
  }
}

// A whole chunk if cached KV can make way for it, else what fits, and only for
// the sake of the very first token does somebody below stop running.
int64_t RoomForChunk(SchedEntry* entry, int64_t chunk, PlanContext* context) {
  if (MakeRoom(entry, chunk, Reach::kCached, context)) return chunk;
  if (!MakeRoom(entry, 1, Reach::kRunning, context)) return 0;
  return context->ledger->MaxFitting(entry->request, chunk);
}

void PlanPrefills(PlanContext* context) {
  const std::vector<SchedEntry*>& running = context->queues->running();
  for (size_t i = 0; i < running.size() && context->budget > 0; ++i) {
    if (IsDecode(running[i]->request)) continue;
    const int32_t chunk =
        ChunkTokens(running[i]->request, context->budget, context->config);
    const int64_t tokens = RoomForChunk(running[i], chunk, context);
    if (tokens > 0) {
      Give(running[i], tokens, context);
    } else {
      ++context->plan->num_blocked;
    }
  }
}

// Strictly in rank order: one that does not fit holds up those behind it, or a
// long prompt would never get in.
void PlanAdmissions(PlanContext* context) {
  // Blocks are short for those who run already: a newcomer would only take what
  // they miss.
  if (context->plan->num_blocked > 0 || context->num_preempted_running > 0)
    return;
  Queues* queues = context->queues;
  const auto max_running = static_cast<size_t>(context->config.max_running);
  while (!queues->waiting().empty() && queues->running().size() < max_running &&
         context->budget > 0) {
    SchedEntry* head = *queues->waiting().begin();
    const int32_t chunk =
        ChunkTokens(head->request, context->budget, context->config);
    if (!MakeRoom(head, AdmissionTokens(head->request, chunk), Reach::kCached,
                  context))
      return;
    queues->Admit(head);
    Give(head, chunk, context);
  }
}

void AddItem(SchedEntry* entry, StepPlan* plan,
             std::vector<SchedEntry*>* scheduled) {
  const SchedRequest& request = entry->request;
  plan->items.push_back({request.id, request.num_computed,
                         entry->planned_tokens,
                         entry->planned_tokens == request.pending()});
  scheduled->push_back(entry);
  entry->in_flight = true;
}

void AddItems(PlanContext* context, std::vector<SchedEntry*>* scheduled) {
  StepPlan* plan = context->plan;
  for (SchedEntry* entry : context->queues->running()) {
    if (entry->planned_tokens == 0 || !IsDecode(entry->request)) continue;
    plan->decode_tokens += entry->planned_tokens;
    AddItem(entry, plan, scheduled);
  }
  for (SchedEntry* entry : context->queues->running()) {
    if (entry->planned_tokens == 0 || IsDecode(entry->request)) continue;
    plan->prefill_tokens += entry->planned_tokens;
    AddItem(entry, plan, scheduled);
  }
}

}  // namespace

void PlanStep(PlanContext* context, std::vector<SchedEntry*>* scheduled) {
  context->budget = context->config.max_batch_tokens;
  PlanDecodes(context);
  PlanPrefills(context);
  PlanAdmissions(context);
  AddItems(context, scheduled);
}

}  // namespace inlay
