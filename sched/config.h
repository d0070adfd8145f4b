// SchedulerConfig: the limits that a scheduler keeps. Plain data.
#ifndef INLAY_SCHED_CONFIG_H_
#define INLAY_SCHED_CONFIG_H_

#include <cstdint>

#include "absl/status/status.h"
#include "memory/kv/kv_group.h"
#include "sched/cost_model.h"

namespace inlay {

struct SchedulerConfig {
  KvGroups groups = {KvGroup()};   // those of every request's tables
  int32_t max_batch_tokens = 512;  // tokens computed in a step, >= 1
  int32_t max_running = 256;  // requests in a step, 1 .. max_batch_tokens: each
                              // running one can get a token
  int32_t max_prefill_chunk =
      0;  // tokens of one request in a step; 0: max_batch_tokens
  int32_t max_queue =
      4096;  // waiting requests above which Submit() refuses, >= 1
  // Prefill shares a step with decodes only as far as the step is expected to
  // stay within it; 0: no target.
  int64_t tpot_target_us = 0;
  // A request that has waited this long goes before all others that have not;
  // 0: never.
  int64_t starvation_us = 0;
  CostPrior cost_prior;
};

// INVALID_ARGUMENT naming the first value out of its range.
absl::Status ValidateConfig(const SchedulerConfig& config);

}  // namespace inlay

#endif  // INLAY_SCHED_CONFIG_H_
