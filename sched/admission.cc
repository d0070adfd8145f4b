// Refusing what could never run.
#include "sched/admission.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "sched/policy.h"

namespace inlay {
namespace {

// Sums of two counts cannot overflow, and no device holds this much KV.
constexpr int64_t kMaxTokens = int64_t{1} << 40;

absl::Status InRange(const SchedRequest& request, const char* name,
                     int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("request ", request.id, ": ", name, ": got ", value,
                   ", allowed ", low, " to ", high));
}

}  // namespace

absl::Status CheckCounts(const SchedRequest& request,
                         const SchedulerConfig& config) {
  INLAY_RETURN_IF_ERROR(
      InRange(request, "tokens", request.num_tokens_total, 1, kMaxTokens));
  INLAY_RETURN_IF_ERROR(
      InRange(request, "new tokens", request.max_new_tokens, 0, kMaxTokens));
  if (!request.tables->HasGroups(config.groups)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "request ", request.id, ": tables: got ", request.tables->num_groups(),
        " groups, the first of ", request.tables->group(0).block_size(),
        " tokens a block, allowed are the scheduler's: ", config.groups.size(),
        ", the first of ", config.groups.front().block_size));
  }
  return InRange(request, "tables' tokens", request.tables->num_tokens(), 0, 0);
}

absl::Status CheckFitsAlone(const SchedRequest& request,
                            const SchedulerConfig& config,
                            int64_t pool_blocks) {
  const int64_t blocks = PeakKvBlocks(request, config);
  if (blocks <= pool_blocks) return absl::OkStatus();
  const KvGroup& group = config.groups.front();
  const std::string size =
      config.groups.size() > 1
          ? std::string()
          : absl::StrCat(" of ", group.block_size, " tokens");
  return absl::ResourceExhaustedError(
      absl::StrCat("request ", request.id, ": KV of up to ",
                   PeakKvTokens(request, config, group), " tokens needs ",
                   blocks, " blocks", size, ", there are ", pool_blocks));
}

}  // namespace inlay
