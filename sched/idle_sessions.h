// IdleSessions: sessions without a request whose KV is kept for their next
// turn, least recently used first.
#ifndef INLAY_SCHED_IDLE_SESSIONS_H_
#define INLAY_SCHED_IDLE_SESSIONS_H_

#include <cstddef>
#include <list>

#include "absl/container/flat_hash_map.h"
#include "memory/kv/block_table.h"
#include "sched/request.h"

namespace inlay {

struct IdleSession {
  SessionId id;
  const KvBlockTable* table;  // not owned, not null
};

class IdleSessions {
 public:
  // Adds the session, or makes it the most recently used one.
  void Set(SessionId id, const KvBlockTable* table);
  // Nothing happens if it is not here.
  void Remove(SessionId id);

  bool contains(SessionId id) const { return by_id_.contains(id); }
  size_t size() const { return by_id_.size(); }
  // From the least to the most recently used.
  const std::list<IdleSession>& lru() const { return lru_; }

 private:
  std::list<IdleSession> lru_;
  absl::flat_hash_map<SessionId, std::list<IdleSession>::iterator> by_id_;
};

}  // namespace inlay

#endif  // INLAY_SCHED_IDLE_SESSIONS_H_
