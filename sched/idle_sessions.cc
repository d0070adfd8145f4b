// The least-recently-used list of idle sessions.
#include "sched/idle_sessions.h"

namespace inlay {

void IdleSessions::Set(SessionId id, const KvBlockTable* table) {
  INLAY_DCHECK(table != nullptr);
  Remove(id);
  std::list<IdleSession> one(1, IdleSession{id, table});
  by_id_.emplace(id, one.begin());
  lru_.splice(lru_.end(), one);
}

void IdleSessions::Remove(SessionId id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  lru_.erase(found->second);
  by_id_.erase(found);
}

}  // namespace inlay
