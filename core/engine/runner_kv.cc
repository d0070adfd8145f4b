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

// Of a cache of `bytes`, what is given up at a time: as long as copying that
// takes, the mutex is held. Each piece looks at all blocks once, so that of a
// large cache they are larger.
uint64_t ShrinkPiece(uint64_t bytes) {
  constexpr uint64_t kLeast = uint64_t{16} << 20;
  constexpr uint64_t kMostPieces = 256;
  return std::max(kLeast, bytes / kMostPieces);
}

}  // namespace

PrefixHit ModelRunner::Peek(const SchedRequest& entry) {
  const Request& request = *requests_.at(entry.id);
  const Session& session = *request.session;
  const KvMatch match =
      kv_->Look(session.salt(), Prefix(session.log, request.reusable()));
  PrefixHit hit;
  hit.num_tokens = match.num_tokens;
  hit.num_held = match.num_blocks() - match.num_evictable() - match.num_below();
  const KvBlockPool& pool = kv_->pool();
  for (size_t g = 0; g < match.groups.size(); ++g) {
    const auto aside = session.hold.tables.group(g).blocks();
    const std::vector<int32_t>& matched = match.groups[g].blocks;
    for (size_t i = 0; i < aside.size(); ++i) {
      const int32_t id = aside[i];
      if (id == KvBlockTable::kNoBlock ||
          pool.RefCount(id) > (pool.IsCached(id) ? 2 : 1))
        continue;
      ++hit.num_aside;
      // It was counted as held by others.
      if (i < matched.size() && matched[i] == id) --hit.num_held;
    }
  }
  return hit;
}

KvTaken ModelRunner::Take(const SchedRequest& entry, int64_t max_tokens) {
  Request& request = *requests_.at(entry.id);
  Session& session = *request.session;
  KvCache::Clear(&session.hold);
  request.looked_again = false;
  const int64_t tokens =
      kv_->BeginTake(session.salt(), Prefix(session.log, request.reusable()),
                     max_tokens, &session.kv);
  return {tokens, session.kv.num_coming()};
}

void ModelRunner::Drop(const SchedRequest& entry) {
  RetireKv(*requests_.at(entry.id)->session);
}

void ModelRunner::PublishKv(Session& session) {
  // Of an encoder's token all others have their part.
  if (loaded_->info.is_encoder) return;
  try {
    kv_->Publish(session.salt(),
                 Prefix(session.log, session.kv.tables.num_tokens()),
                 &session.kv);
  } catch (const std::bad_alloc&) {
    // Others find less; the next step tries again.
  }
}

void ModelRunner::RetireKv(Session& session) {
  if (loaded_->info.is_encoder) return KvCache::Clear(&session.kv);
  kv_->Retire(session.salt(),
              Prefix(session.log, session.kv.tables.num_tokens()), &session.kv);
}

std::vector<KvBlockTable*> ModelRunner::HeldTables() {
  std::vector<KvBlockTable*> tables;
  const auto add = [&](KvTables& of_sequence) {
    for (size_t g = 0; g < of_sequence.num_groups(); ++g) {
      if (of_sequence.group(g).num_tokens() > 0)
        tables.push_back(&of_sequence.group(g));
    }
  };
  for (auto& [id, session] : sessions_) {
    for (KvSequence* sequence : {&session->kv, &session->hold}) {
      add(sequence->tables);
    }
  }
  for (auto& [id, prefix] : prefixes_) add(prefix->held.tables);
  return tables;
}

// Whether to keep what makes way, or to compute it again: there and back are
// two copies of a block.
void ModelRunner::JudgeTier() {
  if (kv_->tier() == nullptr) return;
  constexpr double kCopyBytesPerUs = 4e3;
  const int64_t tokens = kv_->groups().front().block_size;
  const double copies =
      2 * static_cast<double>(KvBlocksFor(tokens, kv_->groups())) *
      static_cast<double>(kv_->block_bytes()) / kCopyBytesPerUs;
  kv_->SetTierPays(scheduler_->cost().PrefillUs(
                       0, tokens, scheduler_->config().max_batch_tokens) >
                   copies);
}

bool ModelRunner::DropRestoring() {
  bool dropped = false;
  for (auto& [id, session] : sessions_) {
    if (!session->restoring || session->hold.tables.num_tokens() == 0) continue;
    KvCache::Clear(&session->hold);
    dropped = true;
  }
  return dropped;
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

ModelRunner::Resized ModelRunner::ResizeKv(uint64_t bytes, SteadyTime until) {
  MutexLock lock(&mu_);
  if (closed_) return Resized::kDone;
  bytes = std::min(bytes, kv_target_bytes_);
  // What stays may have to move: who waits for the mutex is let in between
  // pieces, each of which is a resizing of its own.
  const uint64_t piece = ShrinkPiece(kv_->bytes());
  while (kv_->bytes() > bytes + piece) {
    Resize(kv_->bytes() - piece, Now());
    if (Now() >= until) return Resized::kNoTime;
    mu_.LetOthersIn();
    if (closed_) return Resized::kDone;
  }
  Resize(bytes, Now());
  return kv_->bytes() + kv_->extent_bytes() > bytes ? Resized::kDone
                                                    : Resized::kNoMemory;
}

void ModelRunner::Resize(uint64_t bytes, SteadyTime now) {
  DropAhead();
  const uint64_t next_id = context_.next_id->load();
  if (bytes < kv_->bytes()) {
    const int64_t blocks = kv_->BlocksWithin(bytes);
    if (kv_->num_held() > blocks) DropRestoring();
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
}

}  // namespace inlay
