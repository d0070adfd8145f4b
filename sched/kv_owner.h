// KvOwner: what the scheduler asks of whoever knows the tokens behind the
// tables: what is cached of a request, and to take or drop it while a step is
// being planned.
#ifndef INLAY_SCHED_KV_OWNER_H_
#define INLAY_SCHED_KV_OWNER_H_

#include <cstdint>

#include "sched/request.h"

namespace inlay {

// What is cached of a request's tokens.
struct PrefixHit {
  int64_t num_tokens = 0;  // less than the request's num_tokens_total
  // Of the blocks they fill, those that others hold: taking them uses up no
  // available block.
  int64_t num_held = 0;
  // Blocks set aside for the request that nobody else holds: they become
  // available as it takes its own, however many of these are cached.
  int64_t num_aside = 0;
};

// What a request holds as it is admitted.
struct KvTaken {
  int64_t num_tokens = 0;
  // Blocks of these tokens that are still to come from elsewhere: the scheduler
  // keeps room for them, and plans nothing for the request until it is told
  // that there are none left (Scheduler::SetComing).
  int64_t num_coming = 0;
};

// Called from inside Scheduler::Plan() only, which must not be called back.
class KvOwner {
 public:
  virtual ~KvOwner() = default;
  // Changes nothing.
  virtual PrefixHit Peek(const SchedRequest& request) = 0;
  // The request is admitted: fills its tables (empty) with what is cached of
  // its first max_tokens (>= 0) tokens; with no more than Peek() found, that is
  // all of them, but for what was lost since. Takes no more available blocks,
  // those to come included, than Peek() said.
  virtual KvTaken Take(const SchedRequest& request, int64_t max_tokens) = 0;
  // Clears the request's tables; every block that nobody else holds becomes
  // available.
  virtual void Drop(const SchedRequest& request) = 0;
};

// Nothing is ever cached.
class NoPrefixes final : public KvOwner {
 public:
  PrefixHit Peek(const SchedRequest&) override { return {}; }
  KvTaken Take(const SchedRequest&, int64_t) override { return {}; }
  void Drop(const SchedRequest& request) override { request.tables->Clear(); }
};

}  // namespace inlay

#endif  // INLAY_SCHED_KV_OWNER_H_
