// ModelRunner's named prefixes. A pinned one is computed by a request of the
// engine's own, of which the host sees no events; its KV is then held by the
// prefix itself, like that of any sequence.
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "core/engine/model_runner.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<PrefixId> ModelRunner::AddPrefix(std::string name,
                                                RequestOptions input, bool pin,
                                                uint64_t budget_bytes,
                                                SteadyTime now) {
  if (name.empty()) return absl::InvalidArgumentError("the name is empty");
  input.prompt_for_answer = false;
  INLAY_RETURN_IF_ERROR(Tokenize(input, true));
  INLAY_RETURN_IF_ERROR(Check(input));
  if (input.tokens.empty())
    return absl::InvalidArgumentError("the prefix is empty");
  const auto tokens = static_cast<int64_t>(input.tokens.size());
  if (tokens >= loaded_->max_context) {
    return absl::InvalidArgumentError(FormattedString(
        "the prefix has %d tokens, allowed: less than the context, %d", tokens,
        loaded_->max_context));
  }
  MutexLock lock(&mu_);
  if (closed_) return absl::UnavailableError("the engine was released");
  for (const auto& [id, other] : prefixes_) {
    if (other->name == name) {
      return absl::FailedPreconditionError(FormattedString(
          "the model has a prefix \"%s\": release it first", name));
    }
  }
  const PrefixId id = context_.next_id->fetch_add(1);
  auto prefix =
      std::make_unique<NamedPrefix>(id, std::move(name), kv_->NewSequence());
  prefix->tokens = std::move(input.tokens);
  prefix->pinned = pin;
  prefix->budget_bytes = budget_bytes;
  const int64_t threshold = loaded_->info.rope_threshold;
  prefix->is_long = threshold > 0 && tokens > threshold;
  if (!context_.prefix_sharing) prefix->isolation = id;
  NamedPrefix& added = *prefix;
  prefixes_.emplace(id, std::move(prefix));
  auto undo = absl::MakeCleanup([&] { prefixes_.erase(id); });
  if (pin) INLAY_RETURN_IF_ERROR(Warm(added, now));
  std::move(undo).Cancel();
  Record([&] {
    return CreatePrefixEntry{id,  ToMicroseconds(now), added.name, added.tokens,
                             pin, budget_bytes};
  });
  return id;
}

absl::StatusOr<PrefixId> ModelRunner::CreatePrefix(std::string name,
                                                   RequestOptions input,
                                                   bool pin,
                                                   uint64_t budget_bytes,
                                                   SteadyTime now) {
  auto id =
      AddPrefix(std::move(name), std::move(input), pin, budget_bytes, now);
  // Not under the mutex: whoever steps takes its own first.
  if (id.ok() && context_.on_work) context_.on_work();
  return id;
}

uint64_t ModelRunner::BytesOf(const NamedPrefix& prefix) const {
  return static_cast<uint64_t>(KvHeldBlocks(
             static_cast<int64_t>(prefix.tokens.size()), kv_->groups())) *
         kv_->block_bytes();
}

uint64_t ModelRunner::NumWarming() const {
  uint64_t count = 0;
  for (const auto& [id, prefix] : prefixes_) count += prefix->warming != 0;
  return count;
}

absl::Status ModelRunner::Warm(NamedPrefix& prefix, SteadyTime now) {
  const uint64_t most = prefix.budget_bytes > 0
                            ? std::min(prefix.budget_bytes, kv_target_bytes_)
                            : kv_target_bytes_;
  if (BytesOf(prefix) > most) {
    return absl::ResourceExhaustedError(FormattedString(
        "the prefix \"%s\" needs %d bytes of KV, it may take %d", prefix.name,
        BytesOf(prefix), most));
  }
  if (HoldPrefix(prefix) || prefix.warming != 0) return absl::OkStatus();
  const SessionId id = context_.next_id->fetch_add(1);
  auto session = std::make_unique<Session>(id, kv_->NewSequence());
  session->isolation = prefix.isolation;
  session->warms = prefix.id;
  session->released = true;  // it goes with its request
  Session& added = *session;
  sessions_.emplace(id, std::move(session));
  auto undo = absl::MakeCleanup([&] { EraseSession(id); });
  RequestOptions options;
  options.tokens = prefix.tokens;
  options.max_tokens = 0;
  INLAY_ASSIGN_OR_RETURN(
      Sampler sampler,
      Sampler::Create(options.sampling, loaded_->info.vocab_size));
  INLAY_ASSIGN_OR_RETURN(
      const RequestId request,
      Admit(added, std::move(options), std::move(sampler), now));
  std::move(undo).Cancel();
  context_.events->Drop(request);
  prefix.warming = id;
  return absl::OkStatus();
}

bool ModelRunner::HoldPrefix(NamedPrefix& prefix) {
  // A last block of fewer is not kept by the cache.
  const auto tokens = static_cast<int64_t>(prefix.tokens.size());
  int64_t least = tokens;
  for (const KvGroup& group : kv_->groups()) {
    const int64_t part = tokens % group.block_size;
    if (part < PrefixIndex::kMinPartialTokens)
      least = std::min(least, tokens - part);
  }
  if (prefix.held.tables.num_tokens() >= least) return true;
  KvCache::Clear(&prefix.held);
  if (kv_->Find(prefix.salt(), prefix.tokens).num_tokens < least) return false;
  kv_->Take(prefix.salt(), prefix.tokens, &prefix.held);
  return true;
}

void ModelRunner::OnWarmed(PrefixId id) {
  const auto found = prefixes_.find(id);
  if (found == prefixes_.end()) return;
  found->second->warming = 0;
  if (found->second->pinned) HoldPrefix(*found->second);
}

void ModelRunner::WarmPrefixes(SteadyTime now) {
  for (auto& [id, prefix] : prefixes_) {
    // Where there is still no room, the next growth tries again.
    if (prefix->pinned) static_cast<void>(Warm(*prefix, now));
  }
}

absl::StatusOr<NamedPrefix*> ModelRunner::FindPrefix(PrefixId id) {
  if (closed_) return absl::UnavailableError("the engine was released");
  const auto found = prefixes_.find(id);
  if (found == prefixes_.end())
    return InvalidHandleError("the prefix was released");
  return found->second.get();
}

absl::StatusOr<PrefixId> ModelRunner::RetainPrefix(std::string_view name) {
  MutexLock lock(&mu_);
  if (closed_) return absl::UnavailableError("the engine was released");
  for (const auto& [id, prefix] : prefixes_) {
    if (prefix->name != name) continue;
    ++prefix->holders;
    const PrefixId held = id;
    Record([&] { return RetainPrefixEntry{held}; });
    return held;
  }
  return absl::NotFoundError(
      FormattedString("the model has no prefix \"%s\"", name));
}

absl::Status ModelRunner::PinPrefix(PrefixId id, bool pinned, SteadyTime now) {
  {
    MutexLock lock(&mu_);
    INLAY_ASSIGN_OR_RETURN(NamedPrefix * prefix, FindPrefix(id));
    Record([&] {
      return PinPrefixEntry{id, ToMicroseconds(now), context_.next_id->load(),
                            pinned};
    });
    if (pinned) {
      INLAY_RETURN_IF_ERROR(Warm(*prefix, now));
    } else {
      KvCache::Clear(&prefix->held);
    }
    prefix->pinned = pinned;
    scheduler_->Retry();
  }
  if (context_.on_work) context_.on_work();
  return absl::OkStatus();
}

absl::StatusOr<PrefixInfo> ModelRunner::GetPrefixInfo(PrefixId id) {
  MutexLock lock(&mu_);
  INLAY_ASSIGN_OR_RETURN(NamedPrefix * prefix, FindPrefix(id));
  PrefixInfo info;
  info.num_tokens = prefix->tokens.size();
  info.num_cached = static_cast<uint64_t>(
      kv_->Find(prefix->salt(), prefix->tokens).num_tokens);
  info.kv_bytes = BytesOf(*prefix);
  info.pinned = prefix->pinned;
  return info;
}

absl::StatusOr<SessionId> ModelRunner::OpenPrefix(PrefixId id) {
  MutexLock lock(&mu_);
  INLAY_ASSIGN_OR_RETURN(NamedPrefix * prefix, FindPrefix(id));
  const SessionId session_id = context_.next_id->fetch_add(1);
  auto session = std::make_unique<Session>(session_id, kv_->NewSequence());
  session->log = prefix->tokens;
  session->isolation = prefix->isolation;
  session->is_long = prefix->is_long;
  sessions_.emplace(session_id, std::move(session));
  Record([&] { return OpenPrefixEntry{id, session_id}; });
  return session_id;
}

void ModelRunner::ReleasePrefix(PrefixId id) {
  MutexLock lock(&mu_);
  const auto found = prefixes_.find(id);
  if (closed_ || found == prefixes_.end()) return;
  Record([&] { return ReleasePrefixEntry{id}; });
  if (--found->second->holders > 0) return;
  const auto warming = sessions_.find(found->second->warming);
  prefixes_.erase(found);
  // Nobody is left to compute it for.
  if (warming != sessions_.end())
    CancelRequest(*requests_.at(warming->second->active));
  scheduler_->Retry();
}

}  // namespace inlay
