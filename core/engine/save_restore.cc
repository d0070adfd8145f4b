// ModelRunner's sessions as bytes, and back.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "core/engine/model_runner.h"
#include "core/engine/snapshot.h"
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
    const KvMatch match = kv_->Find(session->salt(), session->log);
    INLAY_RETURN_IF_ERROR(CopyOut(match, snapshot, kv));
  }
  for (size_t g = 0; g < snapshot.num_groups(); ++g) {
    const auto size = static_cast<uint64_t>(snapshot.group(g).block_size);
    const uint64_t first = snapshot.group(g).first_block;
    for (uint64_t i = first; i < snapshot.end_kv_block(g); ++i) {
      const uint64_t ordinal = snapshot.num_kv_blocks_before(g) + i - first;
      ClearUnused(
          loaded_->kv_layout, g,
          static_cast<int>(std::min(size, snapshot.num_kv_tokens - i * size)),
          absl::MakeSpan(kv).subspan(ordinal * bytes, bytes));
    }
  }
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

// The match's blocks, one after another, and in `snapshot` which they are.
absl::Status ModelRunner::CopyOut(const KvMatch& match,
                                  SessionSnapshot& snapshot,
                                  std::vector<std::byte>& kv) {
  snapshot.num_kv_tokens = static_cast<uint64_t>(match.num_tokens);
  const size_t bytes = kv_->block_bytes();
  kv.reserve(
      static_cast<size_t>(KvHeldBlocks(match.num_tokens, kv_->groups())) *
      bytes);
  for (size_t g = 0; g < match.groups.size(); ++g) {
    const KvGroup& group = kv_->groups()[g];
    const auto first =
        static_cast<uint64_t>(KvFirstNeeded(match.num_tokens, group));
    if (g == 0)
      snapshot.first_kv_block = first;
    else
      snapshot.other_groups.push_back({group.block_size, first});
    for (const int32_t id : match.groups[g].blocks) {
      if (id == KvBlockTable::kNoBlock) continue;
      INLAY_ASSIGN_OR_RETURN(const auto block, kv_->HostBlock(id));
      kv.insert(kv.end(), block.begin(), block.end());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelRunner::Restored> ModelRunner::Restore(
    absl::Span<const std::byte> data) {
  SnapshotTarget target;
  target.model = loaded_->fingerprint;
  target.vocabulary = loaded_->vocabulary;
  target.vocab_size = loaded_->info.vocab_size;
  target.max_tokens = loaded_->max_context;
  target.kv = KvFormOf(loaded_->kv_layout);
  const auto groups = loaded_->kv_layout.groups();
  target.groups.assign(groups.begin(), groups.end());
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
    result.note = "the KV cache has no room for all of the session's KV";
  }
  sessions_.emplace(id, std::move(session));
  Record([&] {
    const char* bytes = reinterpret_cast<const char*>(data.data());
    return RestoreEntry{id, std::string(bytes, data.size())};
  });
  result.session = id;
  return result;
}

// As many tokens as there is room for, with a window all or none; the KV then
// lies in the cache like that of any idle session.
int64_t ModelRunner::RestoreKv(const RestoredSession& from, Session& session) {
  const uint64_t salt = session.salt();
  const int64_t there = kv_->Find(salt, session.log).num_tokens;
  auto tokens = static_cast<int64_t>(from.usable_kv_tokens);
  if (there >= tokens) return there;
  const KvGroups& groups = kv_->groups();
  if (groups.size() == 1 && groups.front().window == 0) {
    tokens = std::min(tokens, int64_t{kv_->pool().num_available()} *
                                  groups.front().block_size);
  }
  std::vector<int64_t> first_blocks;
  for (size_t g = 0; g < groups.size(); ++g) {
    first_blocks.push_back(
        static_cast<int64_t>(from.snapshot.group(g).first_block));
  }
  const auto read = [&](size_t group, int64_t index,
                        absl::Span<std::byte> block) {
    const auto bytes = from.KvBlock(group, static_cast<uint64_t>(index));
    std::copy(bytes.begin(), bytes.end(), block.begin());
    return true;
  };
  if (!kv_->Fill(tokens, first_blocks, read, &session.kv)) return there;
  RetireKv(session);
  return kv_->Find(salt, session.log).num_tokens;
}

}  // namespace inlay
