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
  const PrefixMatch match =
      kv_->Find(session.salt(), Prefix(session.log, request.reusable()));
  return {match.num_tokens,
          static_cast<int64_t>(match.blocks.size()) - match.num_evictable};
}

int64_t ModelRunner::Take(const SchedRequest& entry, int64_t max_tokens) {
  Session& session = *requests_.at(entry.id)->session;
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
  for (auto& [id, request] : requests_)
    tables.push_back(&request->session->kv.table);
  return tables;
}

ModelRunner::KvMemory ModelRunner::kv_memory() {
  MutexLock lock(&mu_);
  if (closed_) return {};
  return {kv_->bytes(), kv_target_bytes_, kv_->extent_bytes()};
}

void ModelRunner::ResizeKv(uint64_t bytes) {
  MutexLock lock(&mu_);
  if (closed_) return;
  if (bytes < kv_->bytes()) {
    stats_.preemptions += static_cast<uint64_t>(
        scheduler_->PreemptTo(kv_->BlocksWithin(bytes), ToMicroseconds(Now())));
    const std::vector<KvBlockTable*> held = HeldTables();
    kv_->Shrink(bytes, held, *stream_);
  } else {
    kv_->Grow(std::min(bytes, kv_target_bytes_));
  }
  scheduler_->Retry();
}

}  // namespace inlay
