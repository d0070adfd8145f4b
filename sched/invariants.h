// CheckInvariants: what must hold of a scheduler whenever nobody is inside it.
#ifndef INLAY_SCHED_INVARIANTS_H_
#define INLAY_SCHED_INVARIANTS_H_

#include "absl/status/status.h"

namespace inlay {

class KvBlockPool;
class Scheduler;

// INTERNAL naming the first violation. Looks at every request, table and block;
// for debug builds and tests. Tables are compared with the requests only while
// no plan is in flight: during a step the engine is changing them.
absl::Status CheckInvariants(const Scheduler& scheduler,
                             const KvBlockPool& pool);

}  // namespace inlay

#endif  // INLAY_SCHED_INVARIANTS_H_
