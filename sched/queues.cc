// The moves of requests between waiting and running.
#include "sched/queues.h"

#include <algorithm>

namespace inlay {

void Queues::AddWaiting(SchedEntry* entry) {
  waiting_.insert(entry);
  if (entry->request.num_computed > 0) waiting_with_kv_.insert(entry);
}

void Queues::Admit(SchedEntry* entry) {
  waiting_.erase(entry);
  waiting_with_kv_.erase(entry);
  entry->request.state = RequestState::kRunning;
  running_.insert(
      std::upper_bound(running_.begin(), running_.end(), entry, RankOrder()),
      entry);
}

void Queues::Preempt(SchedEntry* entry) {
  running_.erase(
      std::lower_bound(running_.begin(), running_.end(), entry, RankOrder()));
  entry->planned_tokens = 0;
  entry->planned_blocks = 0;
  entry->request.num_computed = 0;
  entry->request.state = RequestState::kPreempted;
  waiting_.insert(entry);
}

void Queues::DropKv(SchedEntry* entry) {
  waiting_with_kv_.erase(entry);
  entry->request.num_computed = 0;
}

void Queues::Remove(SchedEntry* entry) {
  if (waiting_.erase(entry) > 0) {
    waiting_with_kv_.erase(entry);
    return;
  }
  running_.erase(
      std::lower_bound(running_.begin(), running_.end(), entry, RankOrder()));
}

void Queues::RemoveFinished() {
  std::erase_if(running_, [](const SchedEntry* entry) {
    return entry->request.state == RequestState::kFinished;
  });
}

}  // namespace inlay
