// ModelRunner's sessions as bytes, and back.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "core/engine/model_runner.h"
#include "core/engine/snapshot.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Some 100 us of copying; then who waits for the mutex has it.
constexpr size_t kPieceBytes = size_t{1} << 20;

}  // namespace

absl::Status ModelRunner::Save(SessionId id, ByteSink sink) {
  SessionSnapshot snapshot;
  snapshot.model = loaded_->fingerprint;
  snapshot.vocabulary = loaded_->vocabulary;
  snapshot.kv = KvFormOf(loaded_->kv_layout);
  std::vector<std::byte> kv;
  const size_t bytes = snapshot.kv.block_bytes;
  uint64_t salt = 0;
  {
    MutexLock lock(&mu_);
    INLAY_ASSIGN_OR_RETURN(Session * session, FindIdleSession(id));
    snapshot.log = session->log;
    snapshot.is_long = session->is_long;
    snapshot.seed = session->mark.seed;
    snapshot.num_draws = session->mark.num_draws;
    snapshot.generation_begin = static_cast<uint64_t>(
        std::min<int64_t>(session->mark.generated_begin,
                          static_cast<int64_t>(session->log.size())));
    salt = session->salt();
  }
  INLAY_RETURN_IF_ERROR(CopyKv(salt, snapshot, kv));
  return EncodeSnapshot(
      snapshot,
      [&](size_t group,
          uint64_t index) -> absl::StatusOr<absl::Span<const std::byte>> {
        const uint64_t ordinal = snapshot.num_kv_blocks_before(group) + index -
                                 snapshot.group(group).first_block;
        return absl::MakeConstSpan(kv).subspan(ordinal * bytes, bytes);
      },
      sink);
}

std::vector<KvCache::Located> ModelRunner::FindKv(uint64_t salt,
                                                  SessionSnapshot& snapshot) {
  const KvMatch match = kv_->Find(salt, snapshot.log);
  snapshot.num_kv_tokens = static_cast<uint64_t>(match.num_tokens);
  snapshot.other_groups.clear();
  for (size_t g = 0; g < match.groups.size(); ++g) {
    const KvGroup& group = kv_->groups()[g];
    const auto first =
        static_cast<uint64_t>(KvFirstNeeded(match.num_tokens, group));
    if (g == 0)
      snapshot.first_kv_block = first;
    else
      snapshot.other_groups.push_back({group.block_size, first});
  }
  return kv_->Locate(match);
}

// Under the same key is the same content.
void ModelRunner::KvCopy::Keep(std::vector<KvCache::Located> found,
                               const SessionSnapshot& snapshot) {
  const size_t block_bytes = snapshot.kv.block_bytes;
  std::vector<std::byte> kept(found.size() * block_bytes);
  std::vector<int> rows(found.size());
  std::vector<bool> there(found.size());
  const auto place = [](const KvCache::Located& block) {
    return std::pair(block.group, block.index);
  };
  size_t old = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const auto size = int64_t{snapshot.group(found[i].group).block_size};
    rows[i] = static_cast<int>(std::min(
        size,
        static_cast<int64_t>(snapshot.num_kv_tokens) - found[i].index * size));
    while (old < blocks.size() && place(blocks[old]) < place(found[i])) ++old;
    if (old == blocks.size() || place(blocks[old]) != place(found[i]) ||
        !copied[old] || used[old] != rows[i] || blocks[old].key != found[i].key)
      continue;
    std::memcpy(kept.data() + i * block_bytes, bytes.data() + old * block_bytes,
                block_bytes);
    there[i] = true;
  }
  blocks = std::move(found);
  used = std::move(rows);
  copied = std::move(there);
  bytes = std::move(kept);
}

// A copy, so that neither encoding nor a disk keeps a step waiting, and in
// pieces, so that copying does not: a long session's KV takes seconds. Nothing
// is held meanwhile, which would keep memory from requests and would have to be
// in a recording: where blocks went, what is left is looked for anew.
absl::Status ModelRunner::CopyKv(uint64_t salt, SessionSnapshot& snapshot,
                                 std::vector<std::byte>& kv) {
  constexpr int kAttempts = 16;  // that leave what others evict meanwhile
  KvCopy copy;
  for (int attempt = 0;; ++attempt) {
    std::vector<KvCache::Located> found;
    {
      MutexLock lock(&mu_);
      if (closed_) return absl::UnavailableError("the engine was released");
      found = FindKv(salt, snapshot);
      if (attempt == kAttempts) {
        copy.Keep(std::move(found), snapshot);
        INLAY_RETURN_IF_ERROR(
            CopyBlocks(snapshot, copy, 0, copy.blocks.size()).status());
        break;
      }
    }
    // The system clears pages when they are touched first: not under the mutex.
    copy.Keep(std::move(found), snapshot);
    INLAY_ASSIGN_OR_RETURN(const bool copied, CopyInPieces(snapshot, copy));
    if (copied) break;
  }
  kv = std::move(copy.bytes);
  return absl::OkStatus();
}

absl::StatusOr<bool> ModelRunner::CopyInPieces(const SessionSnapshot& snapshot,
                                               KvCopy& copy) {
  const size_t count = copy.blocks.size();
  const size_t piece =
      std::max<size_t>(kPieceBytes / snapshot.kv.block_bytes, 1);
  MutexLock lock(&mu_);
  for (size_t at = 0; at < count; at += piece) {
    mu_.LetOthersIn();
    if (closed_) return absl::UnavailableError("the engine was released");
    INLAY_ASSIGN_OR_RETURN(
        const bool copied,
        CopyBlocks(snapshot, copy, at, std::min(at + piece, count)));
    if (!copied) return false;
  }
  return true;
}

absl::StatusOr<bool> ModelRunner::CopyBlocks(const SessionSnapshot& snapshot,
                                             KvCopy& copy, size_t begin,
                                             size_t end) {
  const auto tokens =
      absl::MakeConstSpan(snapshot.log).first(snapshot.num_kv_tokens);
  const size_t bytes = snapshot.kv.block_bytes;
  for (size_t i = begin; i < end; ++i) {
    if (copy.copied[i]) continue;
    const KvCache::Located& block = copy.blocks[i];
    if (!kv_->IsThere(block, tokens)) return false;
    INLAY_ASSIGN_OR_RETURN(const auto from, kv_->HostBlock(block.id));
    // Behind those rows another session may be writing.
    CopyUsed(loaded_->kv_layout, block.group, copy.used[i], from,
             absl::MakeSpan(copy.bytes).subspan(i * bytes, bytes));
    copy.copied[i] = true;
  }
  return true;
}

absl::StatusOr<ModelRunner::Restoring> ModelRunner::DecodeSession(
    absl::Span<const std::byte> snapshot) const {
  SnapshotTarget target;
  target.model = loaded_->fingerprint;
  target.vocabulary = loaded_->vocabulary;
  target.vocab_size = loaded_->info.vocab_size;
  target.max_tokens = loaded_->max_context;
  target.kv = KvFormOf(loaded_->kv_layout);
  const auto groups = loaded_->kv_layout.groups();
  target.groups.assign(groups.begin(), groups.end());
  Restoring restoring;
  INLAY_ASSIGN_OR_RETURN(restoring.from, DecodeSnapshot(snapshot, target));
  return restoring;
}

// In pieces, as it is copied out; the session is nobody's until its end.
absl::StatusOr<ModelRunner::Restored> ModelRunner::Restore(
    absl::Span<const std::byte> data) {
  INLAY_ASSIGN_OR_RETURN(Restoring restoring, DecodeSession(data));
  const SessionSnapshot& snapshot = restoring.from.snapshot;
  const auto bytes = [&] {
    return std::string(reinterpret_cast<const char*>(data.data()), data.size());
  };
  Restored result;
  result.num_tokens = snapshot.log.size();
  int64_t there = 0;
  bool at_once = false;
  auto undo = absl::MakeCleanup([&] { ReleaseSession(restoring.session); });
  {
    MutexLock lock(&mu_);
    if (closed_) return absl::UnavailableError("the engine was released");
    Session& session = BeginRestore(restoring);
    // What makes way for it may have to be copied to a tier.
    const int64_t blocks = BlocksToRestore(restoring, session);
    while (kv_->tier() != nullptr && MakeRoom(blocks)) {
      mu_.LetOthersIn();
      if (closed_) return absl::UnavailableError("the engine was released");
    }
    SetAside(restoring, session);
    const size_t count = restoring.places.size();
    at_once = count * snapshot.kv.block_bytes <= kPieceBytes;
    if (at_once) {
      there = EndRestore(*sessions_.at(restoring.session),
                         WriteBlocks(restoring, 0, count));
      Record([&] { return RestoreEntry{restoring.session, bytes()}; });
    } else {
      Record([&] { return BeginRestoreEntry{restoring.session, bytes()}; });
    }
  }
  if (!at_once) {
    const bool written = WriteInPieces(restoring);
    MutexLock lock(&mu_);
    if (closed_) return absl::UnavailableError("the engine was released");
    there = EndRestore(*sessions_.at(restoring.session), written);
    Record([&] { return EndRestoreEntry{restoring.session, written}; });
  }
  result.session = restoring.session;
  result.num_kv_tokens = static_cast<uint64_t>(there);
  result.note = std::move(restoring.from.kv_note);
  if (result.note.empty() && result.num_kv_tokens < snapshot.num_kv_tokens)
    result.note = "the KV cache has no room for all of the session's KV";
  std::move(undo).Cancel();
  // Who waited for its blocks need wait no more.
  if (context_.on_work) context_.on_work();
  return result;
}

Session& ModelRunner::BeginRestore(Restoring& restoring) {
  const SessionSnapshot& from = restoring.from.snapshot;
  restoring.session = context_.next_id->fetch_add(1);
  auto session =
      std::make_unique<Session>(restoring.session, kv_->NewSequence());
  session->log = from.log;
  session->is_long = from.is_long;
  session->mark = {from.seed, from.num_draws,
                   static_cast<int64_t>(from.generation_begin)};
  if (!context_.prefix_sharing) session->isolation = restoring.session;
  session->restoring = true;
  return *sessions_.emplace(restoring.session, std::move(session))
              .first->second;
}

int64_t ModelRunner::BlocksToRestore(const Restoring& restoring,
                                     const Session& session) const {
  const auto tokens = static_cast<int64_t>(restoring.from.usable_kv_tokens);
  // An encoder's tokens are computed anew with every request.
  if (loaded_->info.is_encoder ||
      kv_->Find(session.salt(), session.log).num_tokens >= tokens)
    return 0;
  int64_t blocks = 0;
  for (size_t g = 0; g < kv_->groups().size(); ++g) {
    blocks +=
        KvBlocksFor(tokens, kv_->groups()[g].block_size) -
        static_cast<int64_t>(restoring.from.snapshot.group(g).first_block);
  }
  return blocks;
}

bool ModelRunner::MakeRoom(int64_t blocks) {
  const KvBlockPool& pool = kv_->pool();
  const int64_t missing = blocks - pool.num_free();
  const bool fits = missing <= pool.num_evictable();
  if (missing <= 0 || pool.num_evictable() == 0 || !(fits || RestoresInPart()))
    return false;
  const auto piece = static_cast<int64_t>(
      std::max<size_t>(kPieceBytes / kv_->block_bytes(), 1));
  kv_->index().Reclaim(
      std::min({missing, piece, int64_t{pool.num_evictable()}}));
  return missing > piece;
}

bool ModelRunner::RestoresInPart() const {
  return kv_->groups().size() == 1 && kv_->groups().front().window == 0;
}

// For as many tokens as there is room for, with a window all or none.
void ModelRunner::SetAside(Restoring& restoring, Session& session) {
  if (BlocksToRestore(restoring, session) == 0) return;
  auto tokens = static_cast<int64_t>(restoring.from.usable_kv_tokens);
  const KvGroups& groups = kv_->groups();
  if (RestoresInPart()) {
    tokens = std::min(tokens, int64_t{kv_->pool().num_available()} *
                                  groups.front().block_size);
  }
  std::vector<int64_t> first_blocks;
  for (size_t g = 0; g < groups.size(); ++g) {
    first_blocks.push_back(
        static_cast<int64_t>(restoring.from.snapshot.group(g).first_block));
  }
  // Without room there are no places.
  static_cast<void>(kv_->Allocate(tokens, first_blocks, &session.hold));
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto blocks = session.hold.tables.group(g).blocks();
    for (auto i = first_blocks[g]; i < static_cast<int64_t>(blocks.size()); ++i)
      restoring.places.push_back({g, i});
  }
}

bool ModelRunner::WriteInPieces(const Restoring& restoring) {
  const size_t count = restoring.places.size();
  const size_t piece =
      std::max<size_t>(kPieceBytes / restoring.from.snapshot.kv.block_bytes, 1);
  MutexLock lock(&mu_);
  for (size_t at = 0; at < count; at += piece) {
    mu_.LetOthersIn();
    if (closed_ || !WriteBlocks(restoring, at, std::min(at + piece, count)))
      return false;
  }
  return true;
}

bool ModelRunner::WriteBlocks(const Restoring& restoring, size_t begin,
                              size_t end) {
  const KvSequence& to = sessions_.at(restoring.session)->hold;
  // A cache that had to shrink took them back.
  if (to.tables.num_tokens() == 0) return begin == end;
  for (size_t i = begin; i < end; ++i) {
    const Restoring::Place& place = restoring.places[i];
    const auto bytes =
        restoring.from.KvBlock(place.group, static_cast<uint64_t>(place.index));
    if (!kv_->WriteBlock(to, place.group, place.index, bytes).ok())
      return false;
  }
  return true;
}

// The KV then lies in the cache like that of any idle session.
int64_t ModelRunner::EndRestore(Session& session, bool written) {
  session.restoring = false;
  const auto tokens = static_cast<size_t>(session.hold.tables.num_tokens());
  if (written && tokens > 0) {
    kv_->Retire(session.salt(), absl::MakeConstSpan(session.log).first(tokens),
                &session.hold);
  } else {
    KvCache::Clear(&session.hold);
  }
  scheduler_->Retry();
  return kv_->Find(session.salt(), session.log).num_tokens;
}

}  // namespace inlay
