// Engine's memory: models that nobody holds go, and caches follow the budget,
// both in pieces where a step's time is limited.
#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <utility>

#include "core/engine/clock.h"
#include "core/engine/engine.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

void Engine::FindUnused() {
  MutexLock lock(&mu_);
  const auto unused = [](const auto& runner) {
    // With one reference, ours, nobody can make another: handles copy from
    // handles.
    return runner.use_count() == 1;
  };
  // Should memory run out, then before anything is moved.
  closing_.reserve(closing_.size() + runners_.size());
  const auto first = std::stable_partition(runners_.begin(), runners_.end(),
                                           std::not_fn(unused));
  for (auto runner = first; runner != runners_.end(); ++runner)
    Retire(**runner);
  std::move(first, runners_.end(), std::back_inserter(closing_));
  runners_.erase(first, runners_.end());
}

// Models that wait for their disk are passed over.
ModelRunner::Closing Engine::ReclaimPiece(bool waits) {
  const DeferredFrees::Scope scope(frees_);
  auto left = ModelRunner::Closing::kClosed;
  for (size_t i = 0;; ++i) {
    std::shared_ptr<ModelRunner> runner;
    {
      MutexLock lock(&mu_);
      if (i == closing_.size()) break;
      runner = closing_[i];
    }
    const ModelRunner::Closing closing = runner->CloseSome(waits);
    if (closing == ModelRunner::Closing::kMore) return closing;
    if (closing == ModelRunner::Closing::kWaits) {
      left = closing;
      continue;
    }
    MutexLock lock(&mu_);
    closing_.erase(closing_.begin() + static_cast<ptrdiff_t>(i));
    return ModelRunner::Closing::kMore;
  }
  if (frees_ != nullptr && frees_->FreeSome())
    return ModelRunner::Closing::kMore;
  return left;
}

bool Engine::ReclaimSome(SteadyTime until, bool waits) {
  FindUnused();
  // Another thread is at it: one that loads a model.
  if (!reclaim_mu_.TryLock()) return false;
  const bool did = ReclaimUntil(until, waits);
  reclaim_mu_.Unlock();
  return did;
}

void Engine::ReclaimAll() {
  FindUnused();
  MutexLock lock(&reclaim_mu_);
  ReclaimUntil(SteadyTime::max(), /*waits=*/true);
}

bool Engine::ReclaimUntil(SteadyTime until, bool waits) {
  bool did = false;
  auto left = ReclaimPiece(waits);
  while (left == ModelRunner::Closing::kMore) {
    did = reclaims_ = true;
    if (Now() >= until) return true;
    left = ReclaimPiece(waits);
  }
  reclaim_waits_ = left == ModelRunner::Closing::kWaits;
  // Others may have what they leave.
  if (reclaims_.exchange(false)) budget_changed_ = true;
  return did;
}

bool Engine::HasToReclaim() {
  if (reclaims_) return true;
  MutexLock lock(&mu_);
  return !closing_.empty() || (frees_ != nullptr && frees_->bytes() > 0);
}

uint64_t Engine::FixedBytes() const {
  const MemoryUse use = device_->memory_use();
  uint64_t bytes = 0;
  for (const MemoryClass fixed :
       {MemoryClass::kWeights, MemoryClass::kWorkspace})
    bytes += use.by_class[static_cast<size_t>(fixed)];
  return bytes;
}

absl::Status Engine::SetMemoryBudget(int device, uint64_t bytes) {
  if (device != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "device is %d, allowed: 0, the only one of this engine", device));
  }
  if (closed()) return absl::UnavailableError("the engine was released");
  if (bytes != 0 && bytes < FixedBytes()) {
    ReclaimAll();
    const uint64_t least = FixedBytes();
    if (bytes < least) {
      return absl::ResourceExhaustedError(FormattedString(
          "the memory budget is %d bytes, allowed: at least %d, which weights "
          "and scratch take; release models for less",
          bytes, least));
    }
  }
  device_->set_budget(bytes);
  ++num_budgets_;
  budget_changed_ = true;
  ObeyWhereFree();
  NotifyWork();
  return absl::OkStatus();
}

// Whoever holds step_mu_ looks again when it has let go: what comes in between
// is not missed.
void Engine::ObeyWhereFree(SteadyTime until) {
  bool obeyed = true;
  while (obeyed && budget_changed_ && Now() < until && step_mu_.TryLock()) {
    obeyed = ObeyBudget(until);
    step_mu_.Unlock();
  }
}

bool Engine::ObeyBudget(SteadyTime until) {
  if (!budget_changed_.exchange(false)) return true;
  try {
    if (ApplyBudget(until)) return true;
  } catch (...) {
    // No memory for the bookkeeping now.
  }
  budget_changed_ = true;  // the next step tries again
  return false;
}

// What weights and scratch leave is shared out: to each cache what it was made
// with, or its proportion of that.
bool Engine::IsOverBudget() const {
  const MemoryUse use = device_->memory_use();
  return use.budget_bytes > 0 && use.total_bytes > use.budget_bytes;
}

bool Engine::ApplyBudget(SteadyTime until) {
  obeys_late_ = false;
  // What nobody has any more goes first.
  if (IsOverBudget() && ReclaimSome(until, /*waits=*/false) && IsOverBudget() &&
      Now() >= until) {
    obeys_late_ = true;
    return false;
  }
  const auto runners = Runners();
  const MemoryUse use = device_->memory_use();
  std::vector<uint64_t> wanted;
  uint64_t sum = 0, held = 0;
  for (const auto& runner : runners) {
    const ModelRunner::KvMemory memory = runner->kv_memory();
    wanted.push_back(memory.target_bytes);
    sum += memory.target_bytes;
    held += memory.bytes;
  }
  uint64_t room = std::numeric_limits<uint64_t>::max();
  if (use.budget_bytes > 0) {
    const uint64_t fixed = use.total_bytes - std::min(use.total_bytes, held);
    room = use.budget_bytes - std::min<uint64_t>(use.budget_bytes, fixed);
  }
  if (room < sum) {
    const double share = static_cast<double>(room) / static_cast<double>(sum);
    for (uint64_t& bytes : wanted)
      bytes = static_cast<uint64_t>(static_cast<double>(bytes) * share);
  }
  trace_.Memory(static_cast<int64_t>(use.budget_bytes),
                static_cast<int64_t>(use.total_bytes));
  // Whoever has too much gives before others take.
  bool applied = true;
  for (const bool shrink : {true, false}) {
    for (size_t i = 0; i < runners.size(); ++i) {
      if ((wanted[i] < runners[i]->kv_memory().bytes) != shrink) continue;
      const ModelRunner::Resized resized =
          runners[i]->ResizeKv(wanted[i], until);
      applied &= resized == ModelRunner::Resized::kDone;
      obeys_late_ |= resized == ModelRunner::Resized::kNoTime;
    }
    // What others take would be given back again.
    if (obeys_late_) return false;
  }
  return applied;
}

}  // namespace inlay
