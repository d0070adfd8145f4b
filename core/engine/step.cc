// ModelRunner::Step: plan -> reserve -> build batch -> forward -> sample ->
// commit (step_commit.cc). What a step that fails had reserved goes back by
// destructors.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "core/engine/clock.h"
#include "core/engine/model_runner.h"
#include "core/sampling/log_softmax.h"
#include "memory/caught.h"
#include "memory/device/thread_pool.h"
#include "memory/formatted_string.h"
#include "memory/status.h"
#ifndef NDEBUG
#include "sched/invariants.h"
#endif

namespace inlay {
namespace {

constexpr uint64_t kMostBudgetUs = uint64_t{1} << 60;

}  // namespace

bool ModelRunner::Step(const StepLimits& limits, StepInfo* info) {
  const bool did = StepSilently(limits, info);
  LogFailures();
  return did;
}

// Not under the mutex: the sink is the host's.
void ModelRunner::LogFailures() {
  std::vector<std::string> failures;
  {
    MutexLock lock(&mu_);
    failures.swap(failures_);
  }
  for (const std::string& failure : failures)
    context_.log(LogLevel::kWarning, failure);
}

bool ModelRunner::StepSilently(const StepLimits& limits, StepInfo* info) {
  StepTimes times;
  times.begin = Now();
  std::shared_ptr<Recorder> recorder;
  PlanInput input;
  input.now_us = ToMicroseconds(times.begin);
  input.budget_us =
      static_cast<int64_t>(std::min<uint64_t>(limits.budget_us, kMostBudgetUs));
  input.must_progress = limits.must_progress;
  WaitForEndedAhead();
  {
    MutexLock lock(&mu_);
    const bool fetched = std::exchange(fetches_, false);
    // Not planned at all, so that a recording need not have each look.
    if (closed_ || scheduler_->empty()) {
      DropAhead();
      return false;
    }
    recorder = recorder_;
    // A recording's plans are as they come without a step ahead.
    if (recorder != nullptr) DropAhead();
    input.decodes_only = ReleaseAhead();
    // What a disk has may not be here yet.
    if (!fetched) LeaveTimeToLoad(input);
    absl::Status prepared = Caught([&] { return Plan(input); });
    times.planned = Now();
    if (prepared.ok()) {
      Record([&] {
        return PlanEntry{input, plan_.items, plan_.preempted, plan_.expired};
      });
    }
    if (prepared.ok() && plan_.items.empty()) {
      // With a step ahead, others may get on.
      DropAhead();
      times.reserved = times.forwarded = times.sampled = times.committed =
          times.planned;
      const bool loaded = Load(limits, times.begin);
      if (loaded) CountStep(times, limits);
      return loaded || input.decodes_only || !plan_.expired.empty();
    }
    if (prepared.ok()) prepared = Caught([&] { return ReserveAndBuild(); });
    if (!prepared.ok()) {
      batch_.Clear();
      StartOver(prepared);
      return true;
    }
    const absl::Status ahead = Caught([&] {
      TakeAhead();
      if (MayGoAhead(limits)) PlanAhead();
      return absl::OkStatus();
    });
    if (!ahead.ok()) DropAhead();
  }
  times.reserved = Now();
  // Should the process die of this step, the recording has it.
  FlushRecording(recorder.get());
  absl::Status executed = Caught([&] { return Forward(); });
  times.forwarded = Now();
  if (executed.ok()) executed = Caught([&] { return Sample(*info); });
  times.sampled = Now();
  bool idle = false;
  {
    MutexLock lock(&mu_);
    if (ahead_lost_ || !executed.ok()) DropAhead();
    CommitItems(executed);
    const double elapsed_us =
        executed.ok()
            ? static_cast<double>(MicrosecondsBetween(times.begin, Now()))
            : -1.0;
    Record([&] { return RecordedCommit(elapsed_us); });
    CommitPlan(elapsed_us);
    idle = scheduler_->empty();
    times.committed = Now();
    if (!idle) Load(limits, times.begin);
    CountStep(times, limits);
    info->predicted_us += static_cast<uint64_t>(plan_.predicted_us);
    info->requests += static_cast<uint32_t>(batch_.items.size());
    info->prefill_tokens += static_cast<uint32_t>(batch_.prefill_tokens);
    info->decode_tokens += static_cast<uint32_t>(batch_.decode_tokens);
    batch_.Clear();
    CheckInvariantsInDebug();
  }
  if (idle) {
    FlushRecording(recorder.get());
    WaitForEndedAhead();
    MutexLock lock(&mu_);
    DropAhead();
  }
  return true;
}

// That ends now.
void ModelRunner::CountStep(const StepTimes& times, const StepLimits& limits) {
  const SteadyTime end = Now();
  const uint64_t took = MicrosecondsBetween(times.begin, end);
  const auto tokens =
      static_cast<uint64_t>(batch_.prefill_tokens + batch_.decode_tokens);
  metrics_.step_time_us.Add(took);
  metrics_.schedule_time_us.Add(
      MicrosecondsBetween(times.begin, times.reserved) +
      MicrosecondsBetween(times.sampled, times.committed));
  metrics_.step_tokens.Add(tokens);
  metrics_.step_requests.Add(batch_.items.size());
  metrics_.prefill_tokens += static_cast<uint64_t>(batch_.prefill_tokens);
  metrics_.decode_tokens += static_cast<uint64_t>(batch_.decode_tokens);
  JudgeTier();
  if (limits.budget_us > 0) {
    metrics_.step_overshoot_us.Add(took - std::min(took, limits.budget_us));
  }
  if (!context_.trace->on()) return;
  TraceStep step;
  step.step = plan_.step;
  step.begin = times.begin;
  step.phase_ends = {times.planned, times.reserved,  times.forwarded,
                     times.sampled, times.committed, end};
  step.prefill_tokens = batch_.prefill_tokens;
  step.decode_tokens = batch_.decode_tokens;
  step.requests = static_cast<int64_t>(batch_.items.size());
  step.predicted_us = static_cast<int64_t>(plan_.predicted_us);
  step.budget_us = static_cast<int64_t>(limits.budget_us);
  context_.trace->Step(context_.trace_model, step);
  const KvBlockPool& pool = kv_->pool();
  context_.trace->Gauges(
      context_.trace_model,
      {static_cast<int64_t>(scheduler_->num_running()),
       static_cast<int64_t>(scheduler_->num_waiting()), pool.num_used(),
       pool.num_free(), pool.num_evictable()});
}

absl::Status ModelRunner::Plan(const PlanInput& input) {
  plan_ = scheduler_->Plan(input);
  for (const RequestId id : plan_.expired) {
    Request& request = *requests_.at(id);
    Fail(request, absl::DeadlineExceededError("the request's deadline passed"));
    End(request);
  }
  (kv_->tier_pays() ? metrics_.preemptions_swap
                    : metrics_.preemptions_recompute) += plan_.preempted.size();
  for (const RequestId id : plan_.preempted) {
    requests_.at(id)->preempted = true;
    context_.trace->Preempted(context_.trace_model, id);
  }
  // Those who run come before what may be computed again.
  const bool waits = plan_.num_blocked > 0 || !plan_.preempted.empty() ||
                     scheduler_->stalled();
  if (waits && DropRestoring()) scheduler_->Retry();
  return absl::OkStatus();
}

absl::Status ModelRunner::ReserveAndBuild() {
  const SteadyTime now = Now();
  batch_.decode_tokens = plan_.decode_tokens;
  batch_.prefill_tokens = plan_.prefill_tokens;
  results_.assign(plan_.items.size(), StepResult{});
  for (const StepItem& item : plan_.items) {
    Request& request = *requests_.at(item.id);
    if (!request.started) {
      request.started = true;
      request.finish.queue_us = MicrosecondsBetween(request.submitted, now);
      request.finish.cached_tokens = static_cast<uint64_t>(item.first_token);
      OnStarted(request);
    }
    if (request.preempted) {
      request.preempted = false;
      context_.trace->Resumed(context_.trace_model, item.id);
    }
    request.in_flight = true;
    auto reservation =
        KvTablesReservation::Make(&request.session->kv.tables, item.num_tokens);
    if (reservation.ok()) {
      AddToBatch(item, request, *std::move(reservation), batch_);
      continue;
    }
    // The plan fits the pool, so this is a fault: it ends this request only.
    BatchItem failed;
    failed.plan = item;
    failed.request = &request;
    failed.first_row = failed.last_row =
        static_cast<int32_t>(batch_.rows.size());
    failed.status = reservation.status();
    batch_.items.push_back(std::move(failed));
  }
  PlaceKv(kv_->groups(), batch_);
  if (executor_->CanSample()) PrepareSampling(batch_);
  return absl::OkStatus();
}

void ModelRunner::OnStarted(const Request& request) {
  const FinishInfo& finish = request.finish;
  metrics_.queue_time_us.Add(finish.queue_us);
  metrics_.prefix_lookup_tokens += finish.prompt_tokens;
  metrics_.prefix_hit_tokens += finish.cached_tokens;
  const auto cached = static_cast<int64_t>(finish.cached_tokens);
  if (cached > 0) {
    context_.trace->PrefixHit(context_.trace_model, request.id, cached,
                              static_cast<int64_t>(finish.prompt_tokens));
  }
  context_.trace->Started(context_.trace_model, request.id, cached);
}

absl::Status ModelRunner::Forward() {
  if (is_taken_) {
    executor_->TakeAhead();
  } else {
    INLAY_RETURN_IF_ERROR(QueueBatch(/*samples=*/true));
  }
  if (ahead_.empty()) return absl::OkStatus();
  // What goes wrong there is not this step's fault.
  ahead_lost_ = !Caught([&] {
                   return executor_->ForwardAhead(
                       ahead_.View(kv_->base()), ahead_.num_blocks(),
                       ahead_.sampling(), ahead_.sources());
                 }).ok();
  return absl::OkStatus();
}

absl::Status ModelRunner::QueueBatch(bool samples) {
  for (const KvBlockCopy& copy : batch_.copies) {
    INLAY_RETURN_IF_ERROR(
        context_.device->Copy(kv_->Block(copy.dst), kv_->Block(copy.src),
                              kv_->block_bytes(), executor_->stream()));
  }
  if (batch_.tokens.empty()) return executor_->stream().Synchronize();
  const SampleBatch sampling = {batch_.sample_options, batch_.logit_edits};
  return executor_->Forward(
      MakeForwardBatch(batch_, kv_->base()),
      static_cast<int64_t>(batch_.blocks.size()),
      samples && !sampling.options.empty() ? &sampling : nullptr);
}

absl::Status ModelRunner::Sample(StepInfo& info) {
  const auto num_rows = static_cast<int64_t>(batch_.rows.size());
  if (!batch_.sample_options.empty()) {
    INLAY_RETURN_IF_ERROR(TakeDeviceTokens());
  } else {
    // A row after another of one kind: those that only an embedding is made of
    // need no logits.
    for (int64_t begin = 0; begin < num_rows;) {
      const bool logits =
          batch_.rows[static_cast<size_t>(begin)].needs_logits();
      int64_t end = begin + 1;
      while (end < num_rows && end - begin < Executor::kLogitSlice &&
             batch_.rows[static_cast<size_t>(end)].needs_logits() == logits) {
        ++end;
      }
      if (logits) INLAY_RETURN_IF_ERROR(SampleRows(begin, end - begin));
      INLAY_RETURN_IF_ERROR(PoolRows(begin, end - begin));
      begin = end;
    }
  }
  INLAY_RETURN_IF_ERROR(FinishPools());
  for (const LogitRow& row : batch_.rows)
    info.sampled_tokens += row.samples ? 1 : 0;
  return absl::OkStatus();
}

absl::Status ModelRunner::TakeDeviceTokens() {
  INLAY_ASSIGN_OR_RETURN(const int32_t* const tokens, executor_->Tokens());
  std::vector<int64_t> faulty;
  for (size_t i = 0; i < batch_.rows.size(); ++i) {
    const int32_t token =
        tokens[is_taken_ ? static_cast<size_t>(device_rows_[i]) : i];
    batch_.rows[i].sample.token = token;
    batch_.rows[i].sample.logprob = std::numeric_limits<float>::quiet_NaN();
    if (token < 0) faulty.push_back(static_cast<int64_t>(i));
  }
  if (faulty.empty()) return absl::OkStatus();
  // The host finds out what is wrong with the logits. Those of a step that
  // another was queued behind are gone.
  if (is_taken_ || !ahead_.empty()) {
    ahead_lost_ = true;
    INLAY_RETURN_IF_ERROR(executor_->Drain());
    INLAY_RETURN_IF_ERROR(QueueBatch(/*samples=*/false));
  }
  for (const int64_t row : faulty) INLAY_RETURN_IF_ERROR(SampleRows(row, 1));
  return absl::OkStatus();
}

absl::Status ModelRunner::SampleRows(int64_t begin, int64_t count) {
  const auto width = static_cast<size_t>(loaded_->info.logit_width());
  INLAY_ASSIGN_OR_RETURN(float* const logits, executor_->Logits(begin, count));
  executor_->pool().ParallelFor(count, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      // On worker threads, where nothing else would catch.
      LogitRow& row = batch_.rows[static_cast<size_t>(begin + i)];
      const absl::Status status = Caught([&] {
        return SampleRow(
            row,
            absl::MakeSpan(logits + static_cast<size_t>(i) * width, width));
      });
      if (!status.ok()) row.status = status;
    }
  });
  return absl::OkStatus();
}

absl::Status ModelRunner::PoolRows(int64_t begin, int64_t count) {
  const auto rows =
      absl::MakeSpan(batch_.rows)
          .subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  if (absl::c_none_of(rows, [](const LogitRow& row) { return row.pools; }))
    return absl::OkStatus();
  std::vector<float> hidden;
  INLAY_RETURN_IF_ERROR(executor_->Hidden(begin, count, &hidden));
  const auto width = static_cast<size_t>(loaded_->info.hidden_size);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].pools) continue;
    Request& request = *batch_.items[static_cast<size_t>(rows[i].item)].request;
    request.pooler.Add(absl::MakeConstSpan(hidden).subspan(i * width, width));
  }
  return absl::OkStatus();
}

absl::Status ModelRunner::FinishPools() {
  // Of those that the model makes something else of.
  std::vector<BatchItem*> labelled, projected;
  for (BatchItem& item : batch_.items) {
    const Request& request = *item.request;
    if (!item.plan.samples || !item.status.ok() || !request.pooler.active()) {
      continue;
    }
    item.pooled = request.pooler.Finish();
    if (!item.pooled.ok()) continue;
    if (request.options.classifies) labelled.push_back(&item);
    if (request.options.projects) projected.push_back(&item);
  }
  INLAY_RETURN_IF_ERROR(HeadsOfPooled(Executor::PooledHead::kLogits, labelled));
  INLAY_RETURN_IF_ERROR(
      HeadsOfPooled(Executor::PooledHead::kEmbedding, projected));
  for (BatchItem* item : projected) {
    const absl::Status status =
        item->request->options.normalise
            ? NormaliseEmbedding(absl::MakeSpan(*item->pooled))
            : CheckFinite(*item->pooled);
    if (!status.ok()) item->pooled = status;
  }
  return absl::OkStatus();
}

absl::Status ModelRunner::HeadsOfPooled(Executor::PooledHead head,
                                        absl::Span<BatchItem* const> items) {
  for (size_t begin = 0; begin < items.size(); begin += Executor::kLogitSlice) {
    const auto slice = items.subspan(begin, Executor::kLogitSlice);
    std::vector<float> rows;
    for (const BatchItem* item : slice) {
      rows.insert(rows.end(), item->pooled->begin(), item->pooled->end());
    }
    INLAY_ASSIGN_OR_RETURN(const absl::Span<const float> out,
                           executor_->OfPooled(head, rows));
    const size_t width = out.size() / slice.size();
    for (size_t i = 0; i < slice.size(); ++i) {
      const auto row = out.subspan(i * width, width);
      slice[i]->pooled->assign(row.begin(), row.end());
    }
  }
  return absl::OkStatus();
}

absl::Status ModelRunner::SampleRow(LogitRow& row, absl::Span<float> logits) {
  const Request& request = *batch_.items[static_cast<size_t>(row.item)].request;
  if (row.emits || row.classifies)
    row.logits.assign(logits.begin(), logits.end());
  if (row.scored >= 0) {
    row.score = LogProbOf(logits, row.scored);
    if (std::isnan(row.score)) {
      return NumericError(FormattedString(
          "the score of the prompt's token at position %d is no number",
          row.position + 1));
    }
  }
  if (!row.samples) return absl::OkStatus();
  auto sample = request.sampler.Sample(logits);
  if (!sample.ok()) return sample.status();
  row.sample = *std::move(sample);
  return absl::OkStatus();
}

void ModelRunner::CheckInvariantsInDebug() {
#ifndef NDEBUG
  INLAY_DCHECK(CheckInvariants(*scheduler_, kv_->pool()).ok());
  if (requests_.empty() && HeldTables().empty() && ahead_.empty())
    INLAY_DCHECK(kv_->num_held() == 0);
#endif
}

}  // namespace inlay
