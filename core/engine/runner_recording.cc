// ModelRunner's recordings: where they begin and end, and what a step leaves in
// them.
#include <algorithm>
#include <utility>

#include "core/engine/model_runner.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::Status ModelRunner::CheckRecordable() {
  const auto refused = [](const char* why) {
    return absl::FailedPreconditionError(
        FormattedString("a recording cannot begin: %s", why));
  };
  if (closed_) return absl::UnavailableError("the engine was released");
  if (recorder_ != nullptr) return refused("the model records already");
  if (!requests_.empty()) return refused("requests run; wait for their end");
  if (kv_->tier() != nullptr) {
    return refused(
        "the model has a cache in host memory, whose thread decides by itself "
        "when blocks move; load it without");
  }
  for (const auto& [id, prefix] : prefixes_) {
    if (prefix->pinned) return refused("a prefix is pinned; unpin it first");
  }
  const bool restores =
      std::any_of(sessions_.begin(), sessions_.end(),
                  [](const auto& entry) { return entry.second->restoring; });
  if (kv_->num_held() > 0 || restores)
    return refused(
        "a quote has KV set aside, or a session is being restored; submit "
        "what was quoted, or wait");
  return absl::OkStatus();
}

absl::Status ModelRunner::StartRecording(const std::string& path) {
  {
    MutexLock lock(&mu_);
    INLAY_RETURN_IF_ERROR(CheckRecordable());
  }
  INLAY_ASSIGN_OR_RETURN(std::shared_ptr<Recorder> recorder,
                         Recorder::Create(path));
  std::shared_ptr<Recorder> started = recorder;
  {
    MutexLock lock(&mu_);
    // Again: anything may have come in meanwhile.
    INLAY_RETURN_IF_ERROR(CheckRecordable());
    INLAY_ASSIGN_OR_RETURN(auto scheduler, NewScheduler());
    scheduler_ = std::move(scheduler);
    kv_->index().Clear();
    recorder_ = std::move(recorder);
    RecordWhatIsThere();
  }
  const absl::Status written = started->Flush();
  if (written.ok()) return written;
  MutexLock lock(&mu_);
  if (recorder_ == started) recorder_.reset();
  return written;
}

void ModelRunner::RecordWhatIsThere() {
  Record([&] {
    RecordingHeader header;
    header.model = loaded_->fingerprint;
    header.vocabulary = loaded_->vocabulary;
    header.kv = KvFormOf(loaded_->kv_layout);
    header.max_context = loaded_->max_context;
    header.kv_budget_bytes = kv_budget_bytes_;
    header.extent_bytes = kv_->extent_bytes();
    header.kv_target_bytes = kv_target_bytes_;
    header.kv_bytes = kv_->bytes();
    header.scheduler = scheduler_->config();
    header.prefix_sharing = context_.prefix_sharing;
    return header;
  });
  for (const auto& [id, session] : sessions_) {
    const Session& from = *session;
    Record([&] {
      return SessionEntry{from.id,
                          from.isolation,
                          from.log,
                          from.is_long,
                          from.mark.seed,
                          from.mark.num_draws,
                          from.mark.generated_begin};
    });
  }
  for (const auto& [id, prefix] : prefixes_) {
    const NamedPrefix& from = *prefix;
    Record([&] {
      return PrefixEntry{from.id, from.isolation, from.name, from.tokens,
                         from.holders};
    });
  }
}

std::shared_ptr<Recorder> ModelRunner::TakeRecorder() {
  MutexLock lock(&mu_);
  return std::exchange(recorder_, nullptr);
}

absl::Status ModelRunner::StopRecording() {
  const std::shared_ptr<Recorder> recorder = TakeRecorder();
  if (recorder == nullptr)
    return absl::FailedPreconditionError("the model does not record");
  return recorder->Finish();
}

CommitEntry ModelRunner::RecordedCommit(double elapsed_us) const {
  CommitEntry commit;
  commit.elapsed_us = static_cast<int64_t>(elapsed_us);
  commit.items.resize(results_.size());
  for (size_t i = 0; i < results_.size(); ++i) {
    CommitEntry::Item& item = commit.items[i];
    item.result = results_[i];
    item.failed = !batch_.items[i].request->finish.status.ok();
    if (item.result.tokens_appended == 0) continue;
    const int32_t row = batch_.items[i].last_row - 1;
    item.token = batch_.rows[static_cast<size_t>(row)].sample.token;
  }
  return commit;
}

void ModelRunner::FlushRecording(Recorder* recorder) const {
  if (recorder == nullptr) return;
  const absl::Status written = recorder->Flush();
  if (written.ok()) return;
  context_.log(LogLevel::kWarning,
               FormattedString("the recording ended: %s", written.ToString()));
}

}  // namespace inlay
