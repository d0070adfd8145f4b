// The least-recently-used list of idle sessions.
#include "sched/idle_sessions.h"

namespace inlay {

void IdleSessions::Set(SessionId id, const KvBlockTable* table) {
  INLAY_DCHECK(table != nullptr);
  Remove(id);
  by_id_[id] = lru_.insert(lru_.end(), IdleSession{id, table});
}

void IdleSessions::Remove(SessionId id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  lru_.erase(found->second);
  by_id_.erase(found);
}

}  // namespace inlay
