// ModelRunner::Step's last part where KV comes back from a tier below: some
// blocks of it a step, in the time that the step has left, so that who runs is
// not kept waiting. The requests that it is for are in no plan until all of
// theirs is there (sched/kv_owner.h).
#include <algorithm>

#include "core/engine/clock.h"
#include "core/engine/model_runner.h"
#include "memory/caught.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Copied at a time while others wait for the mutex.
constexpr size_t kLoadPieceBytes = size_t{1} << 20;

}  // namespace

// Time for blocks that are due is taken from the step.
void ModelRunner::LeaveTimeToLoad(PlanInput& input) const {
  const SchedRequest* next = scheduler_->NextToLoad();
  if (next == nullptr) return;
  input.budget_us = load_pace_.BudgetOfOthers(input.budget_us, next->num_coming,
                                              kv_->block_bytes());
}

double ModelRunner::LoadingEndsUs(const StepLimits& limits,
                                  double elapsed_us) const {
  LoadPace::Step step;
  step.elapsed_us = elapsed_us;
  step.budget_us =
      static_cast<int64_t>(std::min<uint64_t>(limits.budget_us, INT64_MAX));
  step.target_us = scheduler_->config().tpot_target_us;
  step.computed = !plan_.items.empty();
  step.has_decodes = plan_.decode_tokens > 0;
  return load_pace_.EndsUs(step);
}

bool ModelRunner::Load(const StepLimits& limits, SteadyTime begin) {
  fetches_ = false;
  if (scheduler_->NextToLoad() == nullptr) {
    load_pace_.KeptUp();
    return false;
  }
  const auto elapsed = [&] {
    return static_cast<double>(MicrosecondsBetween(begin, Now()));
  };
  const double end_us = LoadingEndsUs(limits, elapsed());
  // The least that a step does.
  bool must = load_pace_.due() || (plan_.items.empty() && limits.must_progress);
  bool did = false;
  bool had_room = true;
  size_t bytes = 0;
  while (must || elapsed() + load_pace_.BlockUs(kv_->block_bytes()) <= end_us) {
    const SchedRequest* next = scheduler_->NextToLoad();
    if (next == nullptr) break;
    const Came came = LoadBlock(*requests_.at(next->id));
    did |= came == Came::kBlock || came == Came::kOther;
    had_room &= came != Came::kNoRoom;
    if (came != Came::kBlock) continue;
    must = false;
    bytes += kv_->block_bytes();
    if (bytes < kLoadPieceBytes) continue;
    bytes = 0;
    mu_.LetOthersIn();
    if (closed_) break;
  }
  if (did) {
    load_pace_.KeptUp();
  } else if (had_room && !fetches_) {
    load_pace_.HadNoTime();
  }
  return did;
}

// Of one whose turn has just come nothing is there yet that was not there when
// it was admitted: what others have brought meanwhile need not come twice.
ModelRunner::Came ModelRunner::LoadBlock(Request& request) {
  Session& session = *request.session;
  if (!request.looked_again) {
    LookAgain(request, session.kv.tables.num_tokens());
    return Came::kOther;
  }
  const SteadyTime begin = Now();
  auto came = KvCache::Came::kNoRoom;
  static_cast<void>(Caught([&] {
    // The first in rank has its block fetched; it is one at a time.
    came = kv_->LoadBlock(session.log, /*fetches=*/!fetches_, &session.kv);
    return absl::OkStatus();
  }));
  switch (came) {
    case KvCache::Came::kBlock:
      break;
    case KvCache::Came::kLost:
      LookAgain(request, session.kv.tables.num_tokens());
      return Came::kOther;
    case KvCache::Came::kFailed:
      // It stays where it is, for another time; what follows is computed.
      LookAgain(request, kv_->NextComing(session.kv));
      return Came::kOther;
    case KvCache::Came::kOnDisk:
      fetches_ = true;
      scheduler_->WaitToLoad(request.id);
      return Came::kNotYet;
    case KvCache::Came::kNoRoom:
      scheduler_->WaitToLoad(request.id);
      return Came::kNoRoom;
  }
  load_pace_.TookBlock(static_cast<double>(MicrosecondsBetween(begin, Now())),
                       kv_->block_bytes());
  SetComing(request);
  if (session.kv.num_coming() == 0) PublishKv(session);
  return Came::kBlock;
}

bool ModelRunner::WaitsForDisk() {
  MutexLock lock(&mu_);
  return !closed_ && fetches_;
}

// What is there already stays in the cache, and is found there.
void ModelRunner::LookAgain(Request& request, int64_t most_tokens) {
  request.looked_again = true;
  Session& session = *request.session;
  const auto log = absl::MakeConstSpan(session.log)
                       .first(static_cast<size_t>(request.reusable()));
  RetireKv(session);
  // Without memory for the list it is computed again.
  static_cast<void>(Caught([&] {
    kv_->BeginTake(session.salt(), log, most_tokens, &session.kv);
    return absl::OkStatus();
  }));
  SetComing(request);
}

void ModelRunner::SetComing(const Request& request) {
  const KvSequence& kv = request.session->kv;
  scheduler_->SetComing(request.id, {kv.tables.num_tokens(), kv.num_coming()});
}

}  // namespace inlay
