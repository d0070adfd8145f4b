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
// Steps without time for a block after which some come all the same, for which
// time is left where it can be: as the scheduler does it with prefill.
constexpr int32_t kLoadGap = 8;
// Of a step that nobody else wants.
constexpr double kLeastLoadUs = 2000;
// One block that took long (a disk, pages of fresh memory) says little about
// the next.
constexpr double kMostGrowth = 4;
constexpr double kDecay = 0.95;  // a block, or a step without one
// Before any was measured: page faults and a copy out of what makes way
// included.
constexpr double kPriorBytesPerUs = 1000;

}  // namespace

double ModelRunner::LoadUs() const {
  return load_us_ > 0
             ? load_us_
             : static_cast<double>(kv_->block_bytes()) / kPriorBytesPerUs;
}

// Time for blocks that are due is taken from the step, but not more than half.
void ModelRunner::LeaveTimeToLoad(PlanInput& input) const {
  if (input.budget_us == 0 || steps_without_load_ < kLoadGap) return;
  const SchedRequest* next = scheduler_->NextToLoad();
  if (next == nullptr) return;
  const double wanted = LoadUs() * static_cast<double>(next->num_coming);
  const double half = static_cast<double>(input.budget_us) / 2;
  input.budget_us -= static_cast<int64_t>(std::min(half, wanted));
}

// Others get at least half of the time, whatever is left of a call's budget,
// which has room for more steps; where decodes have a target, what that leaves.
double ModelRunner::LoadingEndsUs(const StepLimits& limits,
                                  double elapsed_us) const {
  const bool due = steps_without_load_ >= kLoadGap;
  const auto target = static_cast<double>(scheduler_->config().tpot_target_us);
  double end = elapsed_us + (plan_.items.empty() || due
                                 ? std::max(elapsed_us, kLeastLoadUs)
                                 : elapsed_us);
  if (target > 0 && plan_.decode_tokens > 0)
    end = due ? std::max(target, elapsed_us + target / 2) : target;
  return limits.budget_us == 0
             ? end
             : std::min(end, static_cast<double>(limits.budget_us));
}

bool ModelRunner::Load(const StepLimits& limits, SteadyTime begin) {
  if (scheduler_->NextToLoad() == nullptr) {
    steps_without_load_ = 0;
    return false;
  }
  const auto elapsed = [&] {
    return static_cast<double>(MicrosecondsBetween(begin, Now()));
  };
  const double end_us = LoadingEndsUs(limits, elapsed());
  // The least that a step does.
  bool must = steps_without_load_ >= kLoadGap ||
              (plan_.items.empty() && limits.must_progress);
  bool did = false;
  bool had_room = true;
  size_t bytes = 0;
  while (must || elapsed() + LoadUs() <= end_us) {
    const SchedRequest* next = scheduler_->NextToLoad();
    if (next == nullptr) break;
    const Came came = LoadBlock(*requests_.at(next->id));
    did |= came != Came::kNoRoom;
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
    steps_without_load_ = 0;
  } else if (had_room) {
    ++steps_without_load_;
    load_us_ *= kDecay;
  }
  return did;
}

// Of one whose turn has just come nothing is there yet that was not there when
// it was admitted: what others have brought meanwhile need not come twice.
ModelRunner::Came ModelRunner::LoadBlock(Request& request) {
  Session& session = *request.session;
  if (!request.looked_again) {
    LookAgain(request);
    return Came::kOther;
  }
  const SteadyTime begin = Now();
  const absl::Status status =
      Caught([&] { return kv_->LoadBlock(session.log, &session.kv); });
  if (absl::IsNotFound(status)) {
    LookAgain(request);
    return Came::kOther;
  }
  if (!status.ok()) {
    scheduler_->WaitToLoad(request.id);
    return Came::kNoRoom;
  }
  // What the slowest takes, until it was long ago.
  const auto took = static_cast<double>(MicrosecondsBetween(begin, Now()));
  load_us_ =
      std::max(load_us_ * kDecay, std::min(took, LoadUs() * kMostGrowth));
  SetComing(request);
  if (session.kv.num_coming() == 0) PublishKv(session);
  return Came::kBlock;
}

// What is there already stays in the cache, and is found there.
void ModelRunner::LookAgain(Request& request) {
  request.looked_again = true;
  Session& session = *request.session;
  const auto log = absl::MakeConstSpan(session.log)
                       .first(static_cast<size_t>(request.reusable()));
  const int64_t tokens = session.kv.tables.num_tokens();
  RetireKv(session);
  // Without memory for the list it is computed again.
  static_cast<void>(Caught([&] {
    kv_->BeginTake(session.salt(), log, tokens, &session.kv);
    return absl::OkStatus();
  }));
  SetComing(request);
}

void ModelRunner::SetComing(const Request& request) {
  const KvSequence& kv = request.session->kv;
  scheduler_->SetComing(request.id, {kv.tables.num_tokens(), kv.num_coming()});
}

}  // namespace inlay
