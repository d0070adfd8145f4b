// Refusing what could never run.
#include "sched/admission.h"

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
  INLAY_RETURN_IF_ERROR(InRange(request, "table's block size",
                                request.table->block_size(), config.block_size,
                                config.block_size));
  return InRange(request, "table's tokens", request.table->num_tokens(), 0, 0);
}

absl::Status CheckFitsAlone(const SchedRequest& request,
                            const SchedulerConfig& config,
                            int64_t pool_blocks) {
  const int64_t tokens = PeakKvTokens(request, config);
  const int64_t blocks = KvBlocksFor(tokens, config.block_size);
  if (blocks <= pool_blocks) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("request ", request.id, ": KV of up to ", tokens,
                   " tokens needs ", blocks, " blocks of ", config.block_size,
                   " tokens, there are ", pool_blocks));
}

}  // namespace inlay
