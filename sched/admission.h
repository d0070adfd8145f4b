// What a request must satisfy to be queued at all.
#ifndef INLAY_SCHED_ADMISSION_H_
#define INLAY_SCHED_ADMISSION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "sched/config.h"
#include "sched/request.h"

namespace inlay {

// INVALID_ARGUMENT: counts out of range, or tables that do not match them.
absl::Status CheckCounts(const SchedRequest& request,
                         const SchedulerConfig& config);

// RESOURCE_EXHAUSTED, with the numbers, when the request would not fit into an
// otherwise empty pool of pool_blocks. request.max_total_tokens is set.
absl::Status CheckFitsAlone(const SchedRequest& request,
                            const SchedulerConfig& config, int64_t pool_blocks);

}  // namespace inlay

#endif  // INLAY_SCHED_ADMISSION_H_
