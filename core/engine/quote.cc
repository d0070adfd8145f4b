// ModelRunner::Quote: what a request would need, before it is submitted.
#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "core/engine/model_runner.h"
#include "memory/kv/reservation.h"
#include "memory/status.h"
#include "sched/policy.h"

namespace inlay {

absl::StatusOr<RequestQuote> ModelRunner::Quote(SessionId id,
                                                RequestOptions options,
                                                bool reserve) {
  INLAY_RETURN_IF_ERROR(Prepare(id, options));
  MutexLock lock(&mu_);
  INLAY_ASSIGN_OR_RETURN(Session * session, FindIdleSession(id));
  // Others change nothing.
  if (reserve || session->hold.table.num_tokens() > 0)
    Record([&] { return QuoteEntry{id, options, reserve}; });
  KvCache::Clear(&session->hold);
  scheduler_->Retry();
  INLAY_ASSIGN_OR_RETURN(const Draft draft, MakeDraft(*session, options));
  INLAY_RETURN_IF_ERROR(MakeSampler(*session, draft, options).status());
  const SchedRequest entry = MakeEntry(*session, draft, options, Now());

  const uint64_t salt = session->SaltFor(draft.is_long);
  const auto reusable = absl::MakeConstSpan(draft.log).first(
      static_cast<size_t>(draft.first_wanted));
  const PrefixMatch match = kv_->Find(salt, reusable);
  const int64_t peak = PeakKvTokens(entry, scheduler_->config());
  const int32_t block_size = kv_->block_size();
  const int64_t blocks = KvBlocksFor(peak, block_size);
  const int64_t shared = match.num_tokens / block_size;
  RequestQuote quote;
  quote.prompt_tokens = draft.log.size();
  quote.cached_tokens = static_cast<uint64_t>(match.num_tokens);
  quote.kv_bytes = static_cast<uint64_t>(blocks) * kv_->block_bytes();
  quote.new_kv_bytes =
      static_cast<uint64_t>(std::max<int64_t>(0, blocks - shared)) *
      kv_->block_bytes();
  quote.first_token_us = scheduler_->EstimateFirstTokenUs(
      match.num_tokens, static_cast<int64_t>(draft.log.size()));
  quote.fits = blocks <= kv_->pool().num_total();
  const int64_t needed = blocks - (static_cast<int64_t>(match.blocks.size()) -
                                   match.num_evictable);
  quote.fits_now = quote.fits && needed <= kv_->pool().num_available();
  if (!reserve) return quote;

  auto undo = absl::MakeCleanup([&] { KvCache::Clear(&session->hold); });
  kv_->Take(salt, reusable, &session->hold);
  const int64_t rest = peak - session->hold.table.num_tokens();
  INLAY_ASSIGN_OR_RETURN(
      KvReservation reservation,
      KvReservation::Make(&session->hold.table, std::max<int64_t>(0, rest)));
  reservation.Commit(std::max<int64_t>(0, rest));
  std::move(undo).Cancel();
  quote.reserved = true;
  return quote;
}

}  // namespace inlay
