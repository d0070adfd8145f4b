// The moves of requests between waiting and running.
#include "sched/queues.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"

namespace inlay {

void Queues::StartWaiting(SchedEntry* entry) {
  waiting_.insert(entry);
  auto undo = absl::MakeCleanup([&] { StopWaiting(entry); });
  if (entry->request.reserved) reserved_.insert(entry);
  if (!entry->request.starved) by_wait_.insert(entry);
  std::move(undo).Cancel();
}

void Queues::StopWaiting(SchedEntry* entry) {
  waiting_.erase(entry);
  reserved_.erase(entry);
  by_wait_.erase(entry);
}

void Queues::AddWaiting(SchedEntry* entry) {
  StartWaiting(entry);
  if (entry->request.deadline_us == kNoDeadline) return;
  auto undo = absl::MakeCleanup([&] { StopWaiting(entry); });
  by_deadline_.insert(entry);
  std::move(undo).Cancel();
}

void Queues::Admit(SchedEntry* entry) {
  running_.insert(
      std::upper_bound(running_.begin(), running_.end(), entry, RankOrder()),
      entry);
  StopWaiting(entry);
  entry->request.reserved = false;
  entry->request.state = RequestState::kRunning;
}

void Queues::Preempt(SchedEntry* entry, int64_t now_us) {
  running_.erase(
      std::lower_bound(running_.begin(), running_.end(), entry, RankOrder()));
  entry->planned_tokens = 0;
  entry->planned_blocks = 0;
  entry->may_load = false;
  entry->request.num_computed = 0;
  entry->request.num_coming = 0;
  entry->request.state = RequestState::kPreempted;
  entry->request.waiting_since_us = now_us;
  StartWaiting(entry);
}

void Queues::PromoteStarved(int64_t since_us) {
  while (!by_wait_.empty() &&
         (*by_wait_.begin())->request.waiting_since_us < since_us) {
    SchedEntry* entry = *by_wait_.begin();
    by_wait_.erase(by_wait_.begin());
    // Nodes are moved, not made: this cannot run out of memory.
    auto node = waiting_.extract(entry);
    auto reserved = reserved_.extract(entry);
    entry->request.starved = true;
    waiting_.insert(std::move(node));
    if (!reserved.empty()) reserved_.insert(std::move(reserved));
  }
}

SchedEntry* Queues::Expired(int64_t now_us) const {
  if (by_deadline_.empty()) return nullptr;
  SchedEntry* first = *by_deadline_.begin();
  return first->request.deadline_us < now_us ? first : nullptr;
}

void Queues::Remove(SchedEntry* entry) {
  if (entry->request.deadline_us != kNoDeadline) by_deadline_.erase(entry);
  if (waiting_.contains(entry)) return StopWaiting(entry);
  running_.erase(
      std::lower_bound(running_.begin(), running_.end(), entry, RankOrder()));
}

void Queues::RemoveFinished() {
  std::erase_if(running_, [&](SchedEntry* entry) {
    if (entry->request.state != RequestState::kFinished) return false;
    if (entry->request.deadline_us != kNoDeadline) by_deadline_.erase(entry);
    return true;
  });
}

}  // namespace inlay
