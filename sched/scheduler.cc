// The life of requests between Submit() and their last Commit(); planner.cc has
// what a step does with them.
#include "sched/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "sched/admission.h"
#include "sched/invariants.h"

namespace inlay {
namespace {

// Steps after which prefill gets on even where decodes leave it no time.
constexpr int32_t kPrefillGap = 8;

}  // namespace

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Create(
    const SchedulerConfig& config, const KvBlockPool* pool, KvOwner* owner) {
  INLAY_DCHECK(pool != nullptr && owner != nullptr);
  INLAY_RETURN_IF_ERROR(ValidateConfig(config));
  return absl::WrapUnique(new Scheduler(config, pool, owner));
}

Scheduler::Scheduler(const SchedulerConfig& config, const KvBlockPool* pool,
                     KvOwner* owner)
    : config_(config),
      pool_(pool),
      owner_(owner),
      most_blocks_(pool->num_total()),
      cost_(config.cost_prior),
      ledger_(pool, config.groups) {}

absl::Status Scheduler::Submit(const SchedRequest& request) {
  INLAY_RETURN_IF_ERROR(CheckCounts(request, config_));
  if (requests_.contains(request.id)) {
    return absl::InvalidArgumentError(
        absl::StrCat("request ", request.id, ": the id is in use"));
  }
  if (num_waiting() >= static_cast<size_t>(config_.max_queue)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("request ", request.id, ": ", num_waiting(),
                     " requests wait, ", config_.max_queue, " may"));
  }
  auto entry = std::make_unique<SchedEntry>();
  entry->request = request;
  entry->request.max_total_tokens =
      request.num_tokens_total + request.max_new_tokens;
  entry->request.state = RequestState::kWaiting;
  entry->request.num_computed = 0;
  entry->request.waiting_since_us = request.submitted_us;
  entry->request.num_prompt_tokens = request.num_tokens_total;
  most_blocks_ = std::max(most_blocks_, pool_->num_total());
  INLAY_RETURN_IF_ERROR(CheckFitsAlone(entry->request, config_, most_blocks_));
  if (requests_.empty()) shares_.Idle();
  entry->request.arrival = next_arrival_++;
  entry->request.share_tag =
      shares_.Tag(request.share_key, request.num_tokens_total);
  // The owner first: should memory run out, no queue keeps what nobody owns.
  SchedEntry* const raw = entry.get();
  requests_.emplace(request.id, std::move(entry));
  auto undo = absl::MakeCleanup([&] { requests_.erase(request.id); });
  queues_.AddWaiting(raw);
  std::move(undo).Cancel();
  stalled_ = false;
  return absl::OkStatus();
}

absl::Status Scheduler::Cancel(RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end())
    return absl::NotFoundError(
        absl::StrCat("request ", id, ": not known or ended"));
  SchedEntry* entry = found->second.get();
  if (entry->in_flight) {
    entry->request.state = RequestState::kFinished;
  } else {
    queues_.Remove(entry);
    requests_.erase(found);
  }
  Retry();
  return absl::OkStatus();
}

const SchedRequest* Scheduler::Find(RequestId id) const {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : &found->second->request;
}

void Scheduler::Expire(int64_t now_us) {
  while (SchedEntry* entry = queues_.Expired(now_us)) {
    plan_.expired.push_back(entry->request.id);
    // Now, so that this step's plan can have the blocks.
    if (entry->request.state == RequestState::kRunning)
      owner_->Drop(entry->request);
    queues_.Remove(entry);
    requests_.erase(entry->request.id);
    Retry();
  }
}

void Scheduler::Retry() {
  stalled_ = false;
  if (!std::exchange(any_parked_, false)) return;
  for (SchedEntry* entry : queues_.waiting()) entry->parked = false;
}

// Nothing could be planned for want of blocks, though who runs and is first in
// rank may take them from all others: what it needs is held by nobody who runs
// (pins, blocks set aside), for as long as they like. It makes way for those
// behind. False: it is not so, or there is nobody behind.
bool Scheduler::Park(PlanContext* context) {
  if (queues_.running().empty() || requests_.size() < 2) return false;
  SchedEntry* const first = queues_.running().front();
  Preempt(first, context);
  first->parked = true;
  return true;
}

const StepPlan& Scheduler::Plan(const PlanInput& input) {
  if (plan_in_flight() != nullptr) return plan_;
  INLAY_DCHECK(CheckInvariants(*this, *pool_).ok());
  ++plan_.step;
  plan_.items.clear();
  plan_.preempted.clear();
  plan_.expired.clear();
  plan_.decode_tokens = plan_.prefill_tokens = plan_.num_blocked = 0;
  plan_.shape = StepShape();
  Expire(input.now_us);
  // What was set aside for who has begun may be enough for another.
  if (std::exchange(frees_aside_, false)) Retry();
  if (config_.starvation_us > 0)
    queues_.PromoteStarved(input.now_us - config_.starvation_us);
  while (true) {
    plan_.num_blocked = 0;
    ledger_.Begin();
    PlanContext context = {config_,  input,    cost_,  owner_,   &queues_,
                           &ledger_, &shares_, &plan_, &scratch_};
    context.prefill_due = steps_without_prefill_ >= kPrefillGap;
    PlanStep(&context, &scheduled_);
    frees_aside_ |= context.frees_aside;
    if (!plan_.empty() && !input.decodes_only) {
      steps_without_prefill_ =
          context.prefill_late ? steps_without_prefill_ + 1 : 0;
    }
    stalled_ = plan_.empty() && plan_.expired.empty() && !context.out_of_time &&
               !context.loads && !input.decodes_only;
    any_parked_ |= context.parks;
    if (!stalled_ || !Park(&context)) break;
    any_parked_ = true;
  }
  stalled_ &= !frees_aside_;
  INLAY_DCHECK(CheckInvariants(*this, *pool_).ok());
  return plan_;
}

const SchedRequest* Scheduler::NextToLoad() const {
  for (const SchedEntry* entry : queues_.running()) {
    if (entry->may_load && !CanCompute(entry->request)) return &entry->request;
  }
  return nullptr;
}

int64_t Scheduler::num_coming() const {
  int64_t sum = 0;
  for (const SchedEntry* entry : queues_.running())
    sum += entry->request.num_coming;
  return sum;
}

void Scheduler::SetComing(RequestId id, const KvTaken& now) {
  SchedEntry& entry = *requests_.at(id);
  INLAY_DCHECK(!entry.in_flight && !CanCompute(entry.request));
  INLAY_DCHECK(now.num_tokens <= entry.request.num_computed);
  entry.request.num_computed = now.num_tokens;
  entry.request.num_coming = now.num_coming;
  stalled_ = false;
}

void Scheduler::WaitToLoad(RequestId id) { requests_.at(id)->may_load = false; }

uint64_t Scheduler::EstimateFirstTokenUs(int64_t num_cached,
                                         int64_t num_tokens) const {
  const auto prefill = [&](int64_t first, int64_t count) {
    return cost_.PrefillUs(first, count, config_.max_batch_tokens);
  };
  double sum = prefill(num_cached, num_tokens - num_cached);
  for (const SchedEntry* entry : queues_.running()) {
    if (!IsDecode(entry->request))
      sum += prefill(entry->request.num_computed, entry->request.pending());
  }
  for (const SchedEntry* entry : queues_.waiting())
    sum += prefill(0, entry->request.num_tokens_total);
  return static_cast<uint64_t>(sum);
}

int Scheduler::PreemptTo(int64_t max_held, int64_t now_us) {
  INLAY_DCHECK(plan_in_flight() == nullptr);
  int preempted = 0;
  const auto preempt = [&](SchedEntry* entry) {
    owner_->Drop(entry->request);
    queues_.Preempt(entry, now_us);
    ++preempted;
  };
  // Those that the rest could not hold to their end would block all others. A
  // shared last block needs a copy too; let in again, they take less.
  for (size_t i = queues_.running().size(); i-- > 0;) {
    SchedEntry* entry = queues_.running()[i];
    const int64_t copies = entry->request.tables->AppendCopies();
    if (!CheckFitsAlone(entry->request, config_, max_held - copies).ok())
      preempt(entry);
  }
  while (pool_->num_used() - pool_->num_evictable() > max_held &&
         !queues_.running().empty()) {
    preempt(queues_.running().back());
  }
  return preempted;
}

absl::Status Scheduler::CheckResult(size_t index,
                                    const StepResult& result) const {
  const StepItem& item = plan_.items[index];
  const SchedRequest& request = scheduled_[index]->request;
  if (request.state == RequestState::kFinished)
    return absl::OkStatus();  // cancelled: its result does not matter
  const bool sampled = result.computed && item.samples;
  const int32_t most = sampled && request.max_new_tokens > 0 ? 1 : 0;
  // A request with nothing pending that goes on could never be planned again.
  const int32_t least = sampled && !result.finished ? 1 : 0;
  if (result.tokens_appended >= least && result.tokens_appended <= most)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "step result of request ", item.id, ": tokens appended: got ",
      result.tokens_appended, ", allowed ", least, " to ", most,
      result.finished ? "" : " (not finished)"));
}

absl::Status Scheduler::Commit(const StepPlan& plan,
                               absl::Span<const StepResult> results,
                               double elapsed_us) {
  const uint64_t in_flight = plan_in_flight() != nullptr ? plan_.step : 0;
  if (plan.step != plan_.step || (in_flight == 0 && !plan.empty())) {
    return absl::FailedPreconditionError(
        absl::StrCat("commit of step ", plan.step, ": in flight is step ",
                     in_flight, " (0: none)"));
  }
  if (results.size() != scheduled_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("step results: got ", results.size(), ", the plan has ",
                     scheduled_.size(), " items"));
  }
  for (size_t i = 0; i < results.size(); ++i)
    INLAY_RETURN_IF_ERROR(CheckResult(i, results[i]));

  if (elapsed_us >= 0 && !plan_.empty()) cost_.Observe(plan_.shape, elapsed_us);
  bool any_finished = false;
  for (size_t i = 0; i < results.size(); ++i) {
    ApplyResult(scheduled_[i], plan_.items[i], results[i]);
    any_finished |= scheduled_[i]->request.state == RequestState::kFinished;
  }
  if (any_finished) {
    Retry();
    queues_.RemoveFinished();
    for (size_t i = 0; i < results.size(); ++i) {
      if (scheduled_[i]->request.state == RequestState::kFinished)
        requests_.erase(plan_.items[i].id);
    }
  }
  scheduled_.clear();
  return absl::OkStatus();
}

void Scheduler::ApplyResult(SchedEntry* entry, const StepItem& item,
                            const StepResult& result) {
  entry->in_flight = false;
  entry->planned_tokens = 0;
  entry->planned_blocks = 0;
  SchedRequest& request = entry->request;
  request.last_step = plan_.step;
  shares_.Charge(request.share_key, result.tokens_appended);
  if (result.computed) {
    request.num_computed += item.num_tokens;
    request.num_tokens_total += result.tokens_appended;
    request.max_new_tokens -= result.tokens_appended;
  }
  const bool spent = result.tokens_appended > 0 && request.max_new_tokens == 0;
  if (result.finished || spent) request.state = RequestState::kFinished;
}

}  // namespace inlay
