// The ranges of SchedulerConfig.
#include "sched/config.h"

#include "absl/strings/str_cat.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Times, and tokens, can be added without overflow.
constexpr int64_t kMaxTimeUs = int64_t{1} << 60;
constexpr int64_t kMaxWindow = int64_t{1} << 40;

absl::Status InRange(const char* name, int64_t value, int64_t low,
                     int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "scheduler ", name, ": got ", value, ", allowed ", low, " to ", high));
}

}  // namespace

absl::Status ValidateConfig(const SchedulerConfig& config) {
  INLAY_RETURN_IF_ERROR(InRange("groups",
                                static_cast<int64_t>(config.groups.size()), 1,
                                int64_t{kMaxKvGroups}));
  for (const KvGroup& group : config.groups) {
    INLAY_RETURN_IF_ERROR(
        InRange("block_size", group.block_size, 1, INT32_MAX));
    INLAY_RETURN_IF_ERROR(InRange("window", group.window,
                                  group.is_state ? 1 : 0,
                                  group.is_state ? 1 : kMaxWindow));
  }
  INLAY_RETURN_IF_ERROR(
      InRange("max_batch_tokens", config.max_batch_tokens, 1, INT32_MAX));
  INLAY_RETURN_IF_ERROR(
      InRange("max_running", config.max_running, 1, config.max_batch_tokens));
  INLAY_RETURN_IF_ERROR(
      InRange("max_prefill_chunk", config.max_prefill_chunk, 0, INT32_MAX));
  INLAY_RETURN_IF_ERROR(InRange("max_queue", config.max_queue, 1, INT32_MAX));
  INLAY_RETURN_IF_ERROR(
      InRange("tpot_target_us", config.tpot_target_us, 0, kMaxTimeUs));
  return InRange("starvation_us", config.starvation_us, 0, kMaxTimeUs);
}

}  // namespace inlay
