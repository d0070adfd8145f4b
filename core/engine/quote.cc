// ModelRunner::Quote: what a request would need, before it is submitted.
#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "core/engine/model_runner.h"
#include "memory/formatted_string.h"
#include "memory/kv/reservation.h"
#include "memory/status.h"
#include "sched/policy.h"

namespace inlay {

// Fills `hold`, which may hold a beginning already, with blocks for all that
// the request can come to hold. Its groups have different lengths then: it is
// never read or written.
absl::Status ModelRunner::SetAside(const SchedRequest& entry,
                                   KvSequence& hold) {
  const SchedulerConfig& config = scheduler_->config();
  const auto rest_of = [&](size_t g) {
    return std::max<int64_t>(0, PeakKvTokens(entry, config, config.groups[g]) -
                                    hold.tables.group(g).num_tokens());
  };
  int64_t needed = 0;
  for (size_t g = 0; g < config.groups.size(); ++g)
    needed += hold.tables.group(g).BlocksNeeded(rest_of(g));
  const int64_t coming = scheduler_->num_coming();
  const int64_t available = kv_->pool().num_available();
  if (coming > 0 && needed > available - coming) {
    return absl::ResourceExhaustedError(FormattedString(
        "KV blocks: %d needed, %d available, %d of them wanted for KV that is "
        "on its way",
        needed, available, coming));
  }
  for (size_t g = 0; g < config.groups.size(); ++g) {
    KvBlockTable& table = hold.tables.group(g);
    const int64_t rest = rest_of(g);
    INLAY_ASSIGN_OR_RETURN(KvReservation reservation,
                           KvReservation::Make(&table, rest));
    reservation.Commit(rest);
  }
  return absl::OkStatus();
}

absl::StatusOr<RequestQuote> ModelRunner::Quote(SessionId id,
                                                RequestOptions options,
                                                bool reserve) {
  INLAY_RETURN_IF_ERROR(Prepare(id, options).status());
  MutexLock lock(&mu_);
  INLAY_ASSIGN_OR_RETURN(Session * session, FindIdleSession(id));
  // Others change nothing.
  if (reserve || session->hold.tables.num_tokens() > 0)
    Record([&] { return QuoteEntry{id, options, reserve}; });
  KvCache::Clear(&session->hold);
  scheduler_->Retry();
  INLAY_ASSIGN_OR_RETURN(const Draft draft, MakeDraft(*session, options));
  INLAY_RETURN_IF_ERROR(CheckResume(*session, options));
  const SchedRequest entry = MakeEntry(*session, draft, options, Now());

  const uint64_t salt = session->SaltFor(draft.is_long);
  const auto reusable = absl::MakeConstSpan(draft.log).first(
      static_cast<size_t>(draft.first_wanted));
  const KvMatch match = kv_->Find(salt, reusable);
  const SchedulerConfig& config = scheduler_->config();
  const int64_t blocks = PeakKvBlocks(entry, config);
  int64_t fresh = 0;
  for (const KvGroup& group : config.groups) {
    fresh += std::max<int64_t>(
        0, KvBlocksFor(PeakKvTokens(entry, config, group), group.block_size) -
               match.num_tokens / group.block_size);
  }
  RequestQuote quote;
  quote.prompt_tokens = draft.log.size();
  quote.cached_tokens = static_cast<uint64_t>(match.num_tokens);
  quote.kv_bytes = static_cast<uint64_t>(blocks) * kv_->block_bytes();
  quote.new_kv_bytes = static_cast<uint64_t>(fresh) * kv_->block_bytes();
  quote.first_token_us = scheduler_->EstimateFirstTokenUs(
      match.num_tokens, static_cast<int64_t>(draft.log.size()));
  quote.fits = blocks <= kv_->pool().num_total();
  const int64_t needed = blocks - (match.num_blocks() - match.num_evictable());
  // Less what those who run wait for.
  const int64_t available =
      kv_->pool().num_available() - scheduler_->num_coming();
  quote.fits_now = quote.fits && needed <= available;
  if (!reserve) return quote;

  auto undo = absl::MakeCleanup([&] { KvCache::Clear(&session->hold); });
  kv_->Take(salt, reusable, &session->hold);
  INLAY_RETURN_IF_ERROR(SetAside(entry, session->hold));
  std::move(undo).Cancel();
  quote.reserved = true;
  return quote;
}

}  // namespace inlay
