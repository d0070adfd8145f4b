// ModelRunner's sessions as bytes, and back.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "core/engine/model_runner.h"
#include "core/engine/snapshot.h"
#include "memory/kv/reservation.h"
#include "memory/status.h"

namespace inlay {

absl::Status ModelRunner::Save(SessionId id, ByteSink sink) {
  SessionSnapshot snapshot;
  snapshot.model = loaded_->fingerprint;
  snapshot.vocabulary = loaded_->vocabulary;
  snapshot.kv = KvFormOf(loaded_->kv_layout);
  std::vector<std::byte> kv;
  const size_t bytes = snapshot.kv.block_bytes;
  {
    // A copy, so that neither encoding nor a disk keeps a step waiting.
    MutexLock lock(&mu_);
    INLAY_ASSIGN_OR_RETURN(Session * session, FindIdleSession(id));
    snapshot.log = session->log;
    snapshot.is_long = session->is_long;
    snapshot.seed = session->mark.seed;
    snapshot.num_draws = session->mark.num_draws;
    snapshot.generation_begin = static_cast<uint64_t>(
        std::min<int64_t>(session->mark.generated_begin,
                          static_cast<int64_t>(session->log.size())));
    const PrefixMatch match = kv_->Find(session->salt(), session->log);
    snapshot.num_kv_tokens = static_cast<uint64_t>(match.num_tokens);
    while (snapshot.first_kv_block < match.blocks.size() &&
           match.blocks[snapshot.first_kv_block] == KvBlockTable::kNoBlock) {
      ++snapshot.first_kv_block;
    }
    kv.resize((match.blocks.size() - snapshot.first_kv_block) * bytes);
    std::byte* out = kv.data();
    for (size_t i = snapshot.first_kv_block; i < match.blocks.size(); ++i) {
      INLAY_ASSIGN_OR_RETURN(const auto block, kv_->ReadBlock(match.blocks[i]));
      out = std::copy(block.begin(), block.end(), out);
    }
  }
  const auto part = static_cast<int>(
      snapshot.num_kv_tokens % static_cast<uint64_t>(snapshot.kv.block_size));
  if (part > 0) {
    ClearUnusedSlots(loaded_->kv_layout, part, absl::MakeSpan(kv).last(bytes));
  }
  return EncodeSnapshot(
      snapshot,
      [&](uint64_t index) -> absl::StatusOr<absl::Span<const std::byte>> {
        return absl::MakeConstSpan(kv).subspan(
            (index - snapshot.first_kv_block) * bytes, bytes);
      },
      sink);
}

absl::StatusOr<ModelRunner::Restored> ModelRunner::Restore(
    absl::Span<const std::byte> data) {
  SnapshotTarget target;
  target.model = loaded_->fingerprint;
  target.vocabulary = loaded_->vocabulary;
  target.vocab_size = loaded_->info.vocab_size;
  target.max_tokens = loaded_->max_context;
  target.kv = KvFormOf(loaded_->kv_layout);
  target.window = loaded_->info.kv_window;
  INLAY_ASSIGN_OR_RETURN(RestoredSession restored,
                         DecodeSnapshot(data, target));
  Restored result;
  result.num_tokens = restored.snapshot.log.size();
  result.note = std::move(restored.kv_note);

  MutexLock lock(&mu_);
  if (closed_) return absl::UnavailableError("the engine was released");
  const SessionId id = context_.next_id->fetch_add(1);
  auto session = std::make_unique<Session>(id, kv_->NewSequence());
  session->log = restored.snapshot.log;
  session->is_long = restored.snapshot.is_long;
  session->mark = {restored.snapshot.seed, restored.snapshot.num_draws,
                   static_cast<int64_t>(restored.snapshot.generation_begin)};
  if (!context_.prefix_sharing) session->isolation = id;
  result.num_kv_tokens = static_cast<uint64_t>(RestoreKv(restored, *session));
  if (result.note.empty() &&
      result.num_kv_tokens < restored.snapshot.num_kv_tokens) {
    result.note = restored.snapshot.first_kv_block > 0
                      ? "KV that begins behind a sliding window is computed "
                        "again"
                      : "the KV cache has no room for all of the session's KV";
  }
  sessions_.emplace(id, std::move(session));
  Record([&] {
    const char* bytes = reinterpret_cast<const char*>(data.data());
    return RestoreEntry{id, std::string(bytes, data.size())};
  });
  result.session = id;
  return result;
}

// As many tokens as there is room for; the KV then lies in the cache like that
// of any idle session.
int64_t ModelRunner::RestoreKv(const RestoredSession& from, Session& session) {
  const uint64_t salt = session.salt();
  const int64_t there = kv_->Find(salt, session.log).num_tokens;
  const auto usable = static_cast<int64_t>(from.usable_kv_tokens);
  if (there >= usable) return there;
  // KV without its beginning (a window) would have to be entered as such; it is
  // computed again instead.
  if (from.snapshot.first_kv_block > 0) return there;
  const int32_t block_size = kv_->block_size();
  const int64_t most =
      std::min(usable, int64_t{kv_->pool().num_available()} * block_size);
  auto room = KvReservation::Make(&session.kv.table, most);
  if (!room.ok()) return there;
  for (int64_t i = 0; i < room->num_blocks(); ++i) {
    const auto bytes = from.KvBlock(static_cast<uint64_t>(i));
    if (!kv_->WriteBlock(room->block(i), bytes).ok()) return there;
  }
  room->Commit(most);
  RetireKv(session);
  return kv_->Find(salt, session.log).num_tokens;
}

}  // namespace inlay
