// Replayer: the runner that it makes, the steps, and what they show.
#include "core/engine/replay.h"

#include <algorithm>
#include <utility>

#include "core/engine/replayer.h"
#include "core/json/json.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// As the C ABI allows: scratch is allocated by it.
constexpr int32_t kMostBatchTokens = 65536;
constexpr int64_t kMostReplayedBudgetUs = int64_t{1} << 60;

std::string Describe(const StepItem& item) {
  return FormattedString("%d tokens from %d on of request %d%s",
                         item.num_tokens, item.first_token, item.id,
                         item.samples ? ", sampling" : "");
}

}  // namespace

absl::Status Replayer::Run(RecordingReader& reader,
                           const std::function<bool()>& go_on) {
  while (!ended_ && !report_.stopped) {
    if (!go_on()) return absl::UnavailableError("the engine was released");
    INLAY_ASSIGN_OR_RETURN(const std::optional<RecordingEntry> entry,
                           reader.Next());
    if (!entry.has_value()) break;
    const bool is_header = std::holds_alternative<RecordingHeader>(*entry);
    if (is_header != (runner_ == nullptr)) {
      return Senseless(FormattedString(
          "entry %d is \"%s\"", reader.num_entries() - 1, EntryName(*entry)));
    }
    begun_ |= !is_header && !std::holds_alternative<SessionEntry>(*entry) &&
              !std::holds_alternative<PrefixEntry>(*entry);
    INLAY_RETURN_IF_ERROR(
        std::visit([&](const auto& fields) { return Apply(fields); }, *entry));
    report_.entries = reader.num_entries();
  }
  report_.damage = reader.damage();
  if (runner_ == nullptr) return IoError(report_.damage);
  return absl::OkStatus();
}

absl::Status Replayer::CheckSame(const RecordingHeader& header) const {
  const auto other = [](const std::string& what) {
    return absl::InvalidArgumentError("the recording is of another " + what);
  };
  if (header.model != loaded_->fingerprint ||
      header.vocabulary != loaded_->vocabulary)
    return other("model");
  const KvForm kv = KvFormOf(loaded_->kv_layout);
  if (header.kv != kv) {
    return other(FormattedString(
        "KV cache: blocks of %d tokens in %d bytes, this model was loaded with "
        "%d in %d; load it with the same KV type and block size",
        header.kv.block_size, header.kv.block_bytes, kv.block_size,
        kv.block_bytes));
  }
  if (header.max_context != loaded_->max_context) {
    return other(
        FormattedString("context: %d tokens, this model was loaded with %d",
                        header.max_context, loaded_->max_context));
  }
  const uint64_t most_kv =
      std::max(header.kv_budget_bytes, header.kv_target_bytes);
  if (header.scheduler.max_batch_tokens > kMostBatchTokens ||
      header.kv_budget_bytes == 0 ||
      most_kv > context_.device->info().memory_bytes) {
    return absl::ResourceExhaustedError(FormattedString(
        "the recording asks for steps of %d tokens and a KV cache of %d bytes, "
        "allowed: %d and %d",
        header.scheduler.max_batch_tokens, most_kv, kMostBatchTokens,
        context_.device->info().memory_bytes));
  }
  return absl::OkStatus();
}

absl::Status Replayer::Apply(const RecordingHeader& header) {
  INLAY_RETURN_IF_ERROR(CheckSame(header));
  context_.events = &events_;
  context_.next_id = &next_id_;
  context_.trace = &trace_;
  context_.on_work = nullptr;
  context_.scheduler = header.scheduler;
  context_.prefix_sharing = header.prefix_sharing;
  ModelOptions options;
  options.kv_budget_bytes = header.kv_budget_bytes;
  INLAY_ASSIGN_OR_RETURN(runner_,
                         ModelRunner::Create(context_, loaded_, options));
  {
    // One that was chosen may grow beyond what it was made with.
    MutexLock lock(&runner_->mu_);
    runner_->kv_target_bytes_ =
        std::max(header.kv_target_bytes, runner_->kv_->bytes());
  }
  runner_->ResizeKv(header.kv_bytes);
  const ModelRunner::KvMemory memory = runner_->kv_memory();
  if (memory.extent_bytes == header.extent_bytes &&
      memory.target_bytes == header.kv_target_bytes &&
      memory.bytes == header.kv_bytes)
    return absl::OkStatus();
  return Senseless(FormattedString(
      "its KV cache has %d of %d bytes in pieces of %d, one made alike %d of "
      "%d in pieces of %d",
      header.kv_bytes, header.kv_target_bytes, header.extent_bytes,
      memory.bytes, memory.target_bytes, memory.extent_bytes));
}

void Replayer::Note(RequestId request, std::string what) {
  if (report_.first_difference.has_value()) return;
  report_.first_difference = {report_.steps, request, std::move(what)};
}

absl::Status Replayer::Stop(RequestId request, std::string what) {
  Note(request, std::move(what));
  report_.stopped = true;
  return absl::OkStatus();
}

bool Replayer::Same(RequestId recorded, RequestId own) {
  if (recorded == own) return true;
  if (report_.tokens_of.contains(recorded) || report_.tokens_of.contains(own))
    return false;
  return renamed_.emplace(recorded, own).first->second == own;
}

bool Replayer::Same(const std::vector<RequestId>& recorded,
                    const std::vector<RequestId>& own) {
  return std::equal(recorded.begin(), recorded.end(), own.begin(), own.end(),
                    [&](RequestId a, RequestId b) { return Same(a, b); });
}

// What differs, or nothing.
std::string Replayer::ComparePlan(const PlanEntry& entry) {
  MutexLock lock(&runner_->mu_);
  const StepPlan& plan = runner_->plan_;
  if (!Same(entry.expired, plan.expired))
    return "other requests passed their deadline than were recorded";
  if (!Same(entry.preempted, plan.preempted)) {
    return FormattedString(
        "%d requests are preempted, recorded: %d (or others)",
        plan.preempted.size(), entry.preempted.size());
  }
  const size_t both = std::min(plan.items.size(), entry.items.size());
  for (size_t i = 0; i < both; ++i) {
    const StepItem& own = plan.items[i];
    const StepItem& recorded = entry.items[i];
    if (Same(recorded.id, own.id) && recorded.first_token == own.first_token &&
        recorded.num_tokens == own.num_tokens &&
        recorded.samples == own.samples)
      continue;
    return FormattedString("item %d is %s, recorded: %s", i, Describe(own),
                           Describe(recorded));
  }
  if (plan.items.size() == entry.items.size()) return "";
  return FormattedString("%d requests are in the step, recorded: %d",
                         plan.items.size(), entry.items.size());
}

absl::Status Replayer::Apply(const PlanEntry& entry) {
  if (in_flight_) return Senseless("a step was planned within another");
  INLAY_RETURN_IF_ERROR(TimeOf(entry.input.now_us).status());
  if (entry.input.budget_us < 0 ||
      entry.input.budget_us > kMostReplayedBudgetUs)
    return Senseless(
        FormattedString("a step's budget is %d us", entry.input.budget_us));
  {
    MutexLock lock(&runner_->mu_);
    INLAY_RETURN_IF_ERROR(runner_->Plan(entry.input));
  }
  report_.steps += entry.items.empty() ? 0 : 1;
  std::string difference = ComparePlan(entry);
  if (!difference.empty())
    return Stop(0, "the plan differs: " + std::move(difference));
  if (entry.items.empty()) return absl::OkStatus();
  MutexLock lock(&runner_->mu_);
  in_flight_ = true;
  return runner_->ReserveAndBuild();
}

// Only now: what came in meanwhile touches nothing that the step works on.
absl::Status Replayer::Execute(const CommitEntry& entry) {
  if (entry.elapsed_us < 0)
    return absl::AbortedError("the step failed when it was recorded");
  INLAY_RETURN_IF_ERROR(runner_->Forward());
  StepInfo info;
  return runner_->Sample(info);
}

// What was recorded of an item is what happens, and what would have happened is
// noted.
void Replayer::Impose(const CommitEntry::Item& recorded, BatchItem& item) {
  const RequestId id = item.request->id;
  if (item.first_row == item.last_row || item.request->cancelled) return;
  LogitRow& row = runner_->batch_.rows[static_cast<size_t>(item.last_row - 1)];
  absl::Status own;
  for (int32_t i = item.first_row; i < item.last_row; ++i)
    own.Update(runner_->batch_.rows[static_cast<size_t>(i)].status);
  if (own.ok() == recorded.failed) {
    Note(id, own.ok() ? "a request that failed goes on"
                      : "a request that went on fails: " + own.ToString());
    for (int32_t i = item.first_row; i < item.last_row; ++i)
      runner_->batch_.rows[static_cast<size_t>(i)].status = absl::OkStatus();
    if (recorded.failed) row.status = absl::AbortedError("recorded so");
  }
  if (recorded.result.tokens_appended == 0) return;
  ++report_.tokens;
  report_.tokens_of[id].push_back(row.sample.token);
  if (row.sample.token == recorded.token && own.ok()) return;
  ++report_.tokens_differing;
  Note(id, FormattedString("token %d is sampled, recorded: %d",
                           row.sample.token, recorded.token));
  row.sample.token = recorded.token;
}

absl::Status Replayer::Apply(const CommitEntry& entry) {
  std::vector<BatchItem>& items = runner_->batch_.items;
  if (!in_flight_ || entry.items.size() != items.size() ||
      entry.elapsed_us > kMostTimeUs || entry.elapsed_us < -1)
    return Senseless("a commit that fits no plan");
  for (const CommitEntry::Item& item : entry.items)
    INLAY_RETURN_IF_ERROR(CheckTokens({item.token}));
  const absl::Status executed = Execute(entry);
  if (!executed.ok() && entry.elapsed_us >= 0)
    return Stop(0, "a step that was computed fails: " + executed.ToString());
  MutexLock lock(&runner_->mu_);
  for (size_t i = 0; executed.ok() && i < items.size(); ++i)
    Impose(entry.items[i], items[i]);
  runner_->CommitItems(executed);
  for (size_t i = 0; i < items.size(); ++i) {
    const StepResult& own = runner_->results_[i];
    const StepResult& recorded = entry.items[i].result;
    if (own.tokens_appended == recorded.tokens_appended &&
        own.finished == recorded.finished && own.computed == recorded.computed)
      continue;
    static_cast<void>(
        Stop(items[i].request->id,
             FormattedString("a request %s, recorded: %s",
                             own.finished ? "ends" : "goes on",
                             recorded.finished ? "it ended" : "it went on")));
  }
  runner_->CommitPlan(static_cast<double>(entry.elapsed_us));
  runner_->batch_.Clear();
  runner_->failures_.clear();
  in_flight_ = false;
  runner_->CheckInvariantsInDebug();
  return absl::OkStatus();
}

absl::Status Replayer::Apply(const EndEntry&) {
  ended_ = true;
  return absl::OkStatus();
}

// A step without a commit ends its requests, as one that failed.
void Replayer::AbandonStep() {
  if (!in_flight_) return;
  in_flight_ = false;
  MutexLock lock(&runner_->mu_);
  runner_->CommitItems(absl::AbortedError("the replay ended"));
  runner_->CommitPlan(-1);
  runner_->batch_.Clear();
}

absl::StatusOr<ReplayReport> ModelRunner::Replay(
    const std::string& path, const std::function<bool()>& go_on) const {
  INLAY_ASSIGN_OR_RETURN(RecordingReader reader, RecordingReader::Open(path));
  Replayer replayer(context_, loaded_);
  INLAY_RETURN_IF_ERROR(replayer.Run(reader, go_on));
  return replayer.TakeReport();
}

std::string ToJson(const ReplayReport& report) {
  OrderedJson json = {{"same", report.same()},
                      {"entries", report.entries},
                      {"steps", report.steps},
                      {"requests", report.requests},
                      {"tokens", report.tokens},
                      {"tokens_differing", report.tokens_differing},
                      {"first_difference", nullptr},
                      {"stopped", report.stopped},
                      {"damage", report.damage}};
  if (const auto& first = report.first_difference; first.has_value()) {
    json["first_difference"] = {{"step", first->step},
                                {"request", first->request},
                                {"what", first->what}};
  }
  OrderedJson tokens = OrderedJson::object();
  for (const auto& [id, list] : report.tokens_of)
    tokens[std::to_string(id)] = list;
  json["tokens_of"] = std::move(tokens);
  return DumpJson(json);
}

}  // namespace inlay
