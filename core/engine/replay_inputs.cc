// Replayer: what was there when the recording began, and what came in. The
// runner itself checks what it is given; here are the checks of what its
// callers may be trusted with.
#include <algorithm>
#include <chrono>
#include <utility>

#include "core/engine/replayer.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::Span<const std::byte> Bytes(const std::string& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

}  // namespace

absl::Status Replayer::Senseless(const std::string& what) {
  return absl::InvalidArgumentError("the recording makes no sense: " + what);
}

absl::StatusOr<SteadyTime> Replayer::TimeOf(int64_t us) {
  if (us >= 0 && us <= kMostTimeUs)
    return SteadyTime(std::chrono::microseconds(us));
  return Senseless(
      FormattedString("a time is %d us, allowed: 0 to %d", us, kMostTimeUs));
}

absl::Status Replayer::CheckTokens(const std::vector<int32_t>& tokens) const {
  const auto vocab = loaded_->info.vocab_size;
  const auto known = [&](int32_t token) { return token >= 0 && token < vocab; };
  if (static_cast<int64_t>(tokens.size()) <= loaded_->max_context &&
      std::all_of(tokens.begin(), tokens.end(), known))
    return absl::OkStatus();
  return Senseless("tokens that the model does not have, or too many");
}

absl::Status Replayer::DrawFrom(uint64_t id) {
  if (id < next_id_.load() || id > kMostId) {
    return Senseless(FormattedString("an id is %d, allowed: %d to %d", id,
                                     next_id_.load(), kMostId));
  }
  next_id_.store(id);
  return absl::OkStatus();
}

absl::Status Replayer::Taken(const char* what, const absl::Status& status) {
  if (status.ok()) return status;
  return Stop(0, FormattedString("%s was taken, and is refused now: %s", what,
                                 status.ToString()));
}

absl::Status Replayer::Apply(const SessionEntry& entry) {
  INLAY_RETURN_IF_ERROR(CheckTokens(entry.log));
  MutexLock lock(&runner_->mu_);
  if (begun_ || entry.session == 0 || entry.session > kMostId ||
      entry.isolation > kMostId || runner_->sessions_.contains(entry.session) ||
      entry.generated_begin < 0 ||
      entry.generated_begin > loaded_->max_context) {
    return Senseless(FormattedString("session %d", entry.session));
  }
  auto session =
      std::make_unique<Session>(entry.session, runner_->kv_->NewSequence());
  session->log = entry.log;
  session->isolation = entry.isolation;
  session->is_long = entry.is_long;
  session->mark = {entry.seed, entry.num_draws, entry.generated_begin};
  runner_->sessions_.emplace(entry.session, std::move(session));
  next_id_.store(std::max(next_id_.load(), entry.session + 1));
  return absl::OkStatus();
}

absl::Status Replayer::Apply(const PrefixEntry& entry) {
  INLAY_RETURN_IF_ERROR(CheckTokens(entry.tokens));
  MutexLock lock(&runner_->mu_);
  if (begun_ || entry.prefix == 0 || entry.prefix > kMostId ||
      entry.isolation > kMostId || runner_->prefixes_.contains(entry.prefix) ||
      entry.holders < 1 || entry.holders > kMostHolders ||
      entry.tokens.empty()) {
    return Senseless(FormattedString("prefix %d", entry.prefix));
  }
  auto prefix = std::make_unique<NamedPrefix>(entry.prefix, entry.name,
                                              runner_->kv_->NewSequence());
  prefix->tokens = entry.tokens;
  prefix->isolation = entry.isolation;
  prefix->holders = entry.holders;
  runner_->prefixes_.emplace(entry.prefix, std::move(prefix));
  next_id_.store(std::max(next_id_.load(), entry.prefix + 1));
  return absl::OkStatus();
}

absl::Status Replayer::Apply(const CreateEntry& entry) {
  INLAY_RETURN_IF_ERROR(DrawFrom(entry.session));
  return Taken("a session", runner_->CreateSession());
}

absl::Status Replayer::Apply(const ForkEntry& entry) {
  INLAY_RETURN_IF_ERROR(DrawFrom(entry.fork));
  return Taken("a fork", runner_->Fork(entry.session));
}

absl::Status Replayer::Apply(const RewindEntry& entry) {
  return Taken("a rewind", runner_->Rewind(entry.session, entry.num_tokens));
}

absl::Status Replayer::Apply(const ReleaseEntry& entry) {
  runner_->ReleaseSession(entry.session);
  return absl::OkStatus();
}

absl::Status Replayer::Apply(const SubmitEntry& entry) {
  INLAY_ASSIGN_OR_RETURN(const SteadyTime now, TimeOf(entry.now_us));
  INLAY_RETURN_IF_ERROR(DrawFrom(entry.request));
  RequestOptions options = entry.options;
  auto sampler = runner_->Prepare(entry.session, options);
  absl::Status status = sampler.status();
  if (status.ok()) {
    MutexLock lock(&runner_->mu_);
    const auto session = runner_->FindIdleSession(entry.session);
    status = session.ok() ? runner_
                                ->Admit(**session, std::move(options),
                                        *std::move(sampler), now)
                                .status()
                          : session.status();
  }
  events_.Drop(entry.request);
  if (!status.ok()) return Taken("a request", status);
  ++report_.requests;
  report_.tokens_of[entry.request];
  return absl::OkStatus();
}

absl::Status Replayer::Apply(const CancelEntry& entry) {
  return runner_->Cancel(entry.request);
}

// Whether it reserved is not recorded: what follows shows it.
absl::Status Replayer::Apply(const QuoteEntry& entry) {
  static_cast<void>(
      runner_->Quote(entry.session, entry.options, entry.reserve));
  return absl::OkStatus();
}

absl::Status Replayer::Apply(const RestoreEntry& entry) {
  INLAY_RETURN_IF_ERROR(DrawFrom(entry.session));
  return Taken("a snapshot", runner_->Restore(Bytes(entry.snapshot)));
}

// What was written in pieces is there from the start: nobody reads it before
// its end.
absl::Status Replayer::Apply(const BeginRestoreEntry& entry) {
  INLAY_RETURN_IF_ERROR(DrawFrom(entry.session));
  auto restoring = runner_->DecodeSession(Bytes(entry.snapshot));
  if (!restoring.ok()) return Taken("a snapshot", restoring.status());
  MutexLock lock(&runner_->mu_);
  runner_->SetAside(*restoring, runner_->BeginRestore(*restoring));
  if (runner_->WriteBlocks(*restoring, 0, restoring->places.size()))
    return absl::OkStatus();
  return Stop(0, "a snapshot's KV cannot be written");
}

absl::Status Replayer::Apply(const EndRestoreEntry& entry) {
  MutexLock lock(&runner_->mu_);
  const auto found = runner_->sessions_.find(entry.session);
  if (found == runner_->sessions_.end() || !found->second->restoring)
    return Senseless(FormattedString("session %d", entry.session));
  runner_->EndRestore(*found->second, entry.written);
  return absl::OkStatus();
}

absl::Status Replayer::Apply(const ResizeEntry& entry) {
  if (in_flight_) return Senseless("the cache was resized within a step");
  INLAY_ASSIGN_OR_RETURN(const SteadyTime now, TimeOf(entry.now_us));
  INLAY_RETURN_IF_ERROR(DrawFrom(entry.next_id));
  {
    // At once, as it was: each piece of a long one has an entry of its own.
    MutexLock lock(&runner_->mu_);
    runner_->Resize(std::min(entry.bytes, runner_->kv_target_bytes_), now);
  }
  const uint64_t bytes = runner_->kv_memory().bytes;
  if (bytes == entry.bytes) return absl::OkStatus();
  return Stop(0, FormattedString("the KV cache came to %d bytes, recorded: %d",
                                 bytes, entry.bytes));
}

absl::Status Replayer::Apply(const CreatePrefixEntry& entry) {
  INLAY_ASSIGN_OR_RETURN(const SteadyTime now, TimeOf(entry.now_us));
  INLAY_RETURN_IF_ERROR(DrawFrom(entry.prefix));
  RequestOptions input;
  input.tokens = entry.tokens;
  return Taken("a prefix",
               runner_->CreatePrefix(entry.name, std::move(input), entry.pin,
                                     entry.budget_bytes, now));
}

absl::Status Replayer::Apply(const RetainPrefixEntry& entry) {
  MutexLock lock(&runner_->mu_);
  const auto prefix = runner_->FindPrefix(entry.prefix);
  if (prefix.ok()) ++(*prefix)->holders;
  return Taken("a prefix's name", prefix);
}

// What it returned is not recorded: what follows shows it.
absl::Status Replayer::Apply(const PinPrefixEntry& entry) {
  INLAY_ASSIGN_OR_RETURN(const SteadyTime now, TimeOf(entry.now_us));
  INLAY_RETURN_IF_ERROR(DrawFrom(entry.next_id));
  static_cast<void>(runner_->PinPrefix(entry.prefix, entry.pinned, now));
  return absl::OkStatus();
}

absl::Status Replayer::Apply(const OpenPrefixEntry& entry) {
  INLAY_RETURN_IF_ERROR(DrawFrom(entry.session));
  return Taken("a session", runner_->OpenPrefix(entry.prefix));
}

absl::Status Replayer::Apply(const ReleasePrefixEntry& entry) {
  runner_->ReleasePrefix(entry.prefix);
  return absl::OkStatus();
}

}  // namespace inlay
