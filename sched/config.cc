// The ranges of SchedulerConfig.
#include "sched/config.h"

#include "absl/strings/str_cat.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::Status InRange(const char* name, int32_t value, int32_t low,
                     int32_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "scheduler ", name, ": got ", value, ", allowed ", low, " to ", high));
}

}  // namespace

absl::Status ValidateConfig(const SchedulerConfig& config) {
  INLAY_RETURN_IF_ERROR(InRange("block_size", config.block_size, 1, INT32_MAX));
  INLAY_RETURN_IF_ERROR(
      InRange("max_batch_tokens", config.max_batch_tokens, 1, INT32_MAX));
  INLAY_RETURN_IF_ERROR(
      InRange("max_running", config.max_running, 1, config.max_batch_tokens));
  INLAY_RETURN_IF_ERROR(
      InRange("max_prefill_chunk", config.max_prefill_chunk, 0, INT32_MAX));
  return InRange("max_queue", config.max_queue, 1, INT32_MAX);
}

}  // namespace inlay
