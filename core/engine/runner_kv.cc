// ModelRunner's KV: what the scheduler asks of it, and its memory.
#include <algorithm>

#include "core/engine/model_runner.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::Span<const int32_t> Prefix(const std::vector<int32_t>& log,
                                 int64_t tokens) {
  return absl::MakeConstSpan(log).first(static_cast<size_t>(tokens));
}

}  // namespace

PrefixHit ModelRunner::Peek(const SchedRequest& entry) {
  const Request& request = *requests_.at(entry.id);
  const Session& session = *request.session;
  const KvCache::Hit hit =
      kv_->Look(session.salt(), Prefix(session.log, request.reusable()));
  const PrefixMatch& match = hit.match;
  // Blocks of the hold that are the match's were counted with it.
  const auto set_aside = std::max<int64_t>(
      0, static_cast<int64_t>(session.hold.table.blocks().size()) -
             static_cast<int64_t>(match.blocks.size()));
  return {hit.num_tokens, static_cast<int64_t>(match.blocks.size()) -
                              match.num_evictable + set_aside};
}

int64_t ModelRunner::Take(const SchedRequest& entry, int64_t max_tokens) {
  Session& session = *requests_.at(entry.id)->session;
  KvCache::Clear(&session.hold);
  return kv_->Take(session.salt(), Prefix(session.log, max_tokens),
                   &session.kv);
}

void ModelRunner::Drop(const SchedRequest& entry) {
  RetireKv(*requests_.at(entry.id)->session);
}

void ModelRunner::PublishKv(Session& session) {
  try {
    kv_->Publish(session.salt(),
                 Prefix(session.log, session.kv.table.num_tokens()),
                 &session.kv);
  } catch (const std::bad_alloc&) {
    // Others find less; the next step tries again.
  }
}

void ModelRunner::RetireKv(Session& session) {
  kv_->Retire(session.salt(),
              Prefix(session.log, session.kv.table.num_tokens()), &session.kv);
}

std::vector<KvBlockTable*> ModelRunner::HeldTables() {
  std::vector<KvBlockTable*> tables;
  for (auto& [id, session] : sessions_) {
    for (KvSequence* sequence : {&session->kv, &session->hold}) {
      if (sequence->table.num_tokens() > 0) tables.push_back(&sequence->table);
    }
  }
  for (auto& [id, prefix] : prefixes_) {
    if (prefix->held.table.num_tokens() > 0)
      tables.push_back(&prefix->held.table);
  }
  return tables;
}

// Whether to keep what makes way, or to compute it again: there and back are
// two copies of a block.
void ModelRunner::JudgeTier() {
  if (kv_->tier() == nullptr) return;
  constexpr double kCopyBytesPerUs = 4e3;
  const double copies =
      2 * static_cast<double>(kv_->block_bytes()) / kCopyBytesPerUs;
  kv_->SetTierPays(scheduler_->cost().PrefillUs(
                       0, kv_->block_size(),
                       scheduler_->config().max_batch_tokens) > copies);
}

void ModelRunner::DropHolds() {
  for (auto& [id, session] : sessions_) KvCache::Clear(&session->hold);
  for (auto& [id, prefix] : prefixes_) KvCache::Clear(&prefix->held);
}

ModelRunner::KvMemory ModelRunner::kv_memory() {
  MutexLock lock(&mu_);
  if (closed_) return {};
  return {kv_->bytes(), kv_target_bytes_, kv_->extent_bytes()};
}

bool ModelRunner::ResizeKv(uint64_t bytes, SteadyTime now) {
  MutexLock lock(&mu_);
  if (closed_) return true;
  const uint64_t next_id = context_.next_id->load();
  bytes = std::min(bytes, kv_target_bytes_);
  if (bytes < kv_->bytes()) {
    const int64_t blocks = kv_->BlocksWithin(bytes);
    (kv_->tier_pays() ? metrics_.preemptions_swap
                      : metrics_.preemptions_recompute) +=
        static_cast<uint64_t>(
            scheduler_->PreemptTo(blocks, ToMicroseconds(now)));
    // What nobody runs on goes last: the host asked for it to stay.
    if (kv_->num_held() > blocks) DropHolds();
    executor_->DropGraphs();
    const std::vector<KvBlockTable*> held = HeldTables();
    kv_->Shrink(bytes, held, executor_->stream());
  } else {
    kv_->Grow(bytes);
    WarmPrefixes(now);
  }
  scheduler_->Retry();
  Record([&] {
    return ResizeEntry{ToMicroseconds(now), next_id, kv_->bytes()};
  });
  return kv_->bytes() + kv_->extent_bytes() > bytes;
}

}  // namespace inlay
