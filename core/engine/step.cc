// ModelRunner::Step: plan -> reserve -> build batch -> forward -> sample ->
// commit -> emit. What a step that fails had reserved goes back by destructors.
#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "core/engine/logit_slice.h"
#include "core/engine/model_runner.h"
#include "core/sampling/log_softmax.h"
#include "memory/device/thread_pool.h"
#include "memory/status.h"
#ifndef NDEBUG
#include "sched/invariants.h"
#endif

namespace inlay {
namespace {

uint64_t Microseconds(absl::Duration duration) {
  return static_cast<uint64_t>(
      std::max<int64_t>(0, absl::ToInt64Microseconds(duration)));
}

// Runs a part of the step whose exceptions (memory running out) must become the
// fault of the requests in it, not leave the plan uncommitted.
template <typename Part>
absl::Status Caught(Part&& part) {
  try {
    return part();
  } catch (const std::bad_alloc&) {
    return absl::AlreadyExistsError("out of memory");
  } catch (const std::exception& exception) {
    return absl::InternalError(exception.what());
  }
}

}  // namespace

bool ModelRunner::Step(StepInfo* info) {
  const absl::Time begin = absl::Now();
  {
    MutexLock lock(&mu_);
    if (closed_) return false;
    // Should memory run out in here, what was reserved goes back, and the next
    // step gets the same plan again: it is not committed.
    auto undo = absl::MakeCleanup([this] { batch_.Clear(); });
    Plan();
    if (plan_.items.empty()) return false;
    ReserveAndBuild();
    std::move(undo).Cancel();
  }
  const absl::Time planned = absl::Now();
  absl::Status executed = Caught([&] { return Forward(); });
  if (executed.ok()) executed = Caught([&] { return Sample(*info); });
  const absl::Time computed = absl::Now();
  {
    MutexLock lock(&mu_);
    Commit(executed);
    const absl::Time end = absl::Now();
    ++stats_.steps;
    stats_.step_us += Microseconds(end - begin);
    stats_.schedule_us += Microseconds((end - computed) + (planned - begin));
    stats_.prefill_tokens += static_cast<uint64_t>(batch_.prefill_tokens);
    stats_.decode_tokens += static_cast<uint64_t>(batch_.decode_tokens);
    info->requests += static_cast<uint32_t>(batch_.items.size());
    info->prefill_tokens += static_cast<uint32_t>(batch_.prefill_tokens);
    info->decode_tokens += static_cast<uint32_t>(batch_.decode_tokens);
    batch_.Clear();
    CheckInvariantsInDebug();
  }
  return true;
}

void ModelRunner::Plan() {
  plan_ = scheduler_->Plan();
  // Not all need be there still when a plan is taken up a second time.
  for (const RequestId id : plan_.preempted) {
    const auto it = requests_.find(id);
    if (it != requests_.end()) it->second->session->table.Clear();
  }
  for (const SessionId id : plan_.evicted_sessions) {
    const auto it = sessions_.find(id);
    if (it != sessions_.end() && it->second->active == 0) {
      it->second->table.Clear();
    }
  }
  stats_.preemptions += plan_.preempted.size();
  stats_.evictions += plan_.evicted_sessions.size();
}

void ModelRunner::ReserveAndBuild() {
  const absl::Time now = absl::Now();
  batch_.decode_tokens = plan_.decode_tokens;
  batch_.prefill_tokens = plan_.prefill_tokens;
  results_.assign(plan_.items.size(), StepResult{});
  for (const StepItem& item : plan_.items) {
    Request& request = *requests_.at(item.id);
    if (!request.started) {
      request.started = true;
      request.finish.queue_us = Microseconds(now - request.submitted);
    }
    request.in_flight = true;
    auto reservation =
        KvReservation::Make(&request.session->table, item.num_tokens);
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
}

absl::Status ModelRunner::Forward() {
  const Model& model = *loaded_->model;
  const size_t block_bytes = model.kv_layout().block_bytes();
  for (const KvBlockCopy& copy : batch_.copies) {
    INLAY_RETURN_IF_ERROR(context_.device->Copy(
        kv_.data() + static_cast<size_t>(copy.dst) * block_bytes,
        kv_.data() + static_cast<size_t>(copy.src) * block_bytes, block_bytes,
        *stream_));
  }
  if (batch_.tokens.empty()) return absl::OkStatus();
  ForwardBatch forward = MakeForwardBatch(batch_, kv_.data());
  forward.hidden = MatrixView(hidden_.data(), DType::kF32,
                              static_cast<int64_t>(batch_.rows.size()),
                              model.info().hidden_size);
  return model.Forward(
      forward, absl::MakeSpan(workspace_.data(), workspace_.bytes()), *stream_);
}

absl::Status ModelRunner::Sample(StepInfo& info) {
  const Model& model = *loaded_->model;
  const int64_t vocab = model.info().vocab_size;
  const auto num_rows = static_cast<int64_t>(batch_.rows.size());
  const TensorView hidden = MatrixView(hidden_.data(), DType::kF32, num_rows,
                                       model.info().hidden_size);
  for (int64_t begin = 0; begin < num_rows; begin += kLogitSlice) {
    const int64_t count = std::min(kLogitSlice, num_rows - begin);
    INLAY_RETURN_IF_ERROR(model.Logits(
        hidden.RowSlice(begin, count),
        MatrixView(logits_.data(), DType::kF32, count, vocab),
        absl::MakeSpan(workspace_.data(), workspace_.bytes()), *stream_));
    INLAY_RETURN_IF_ERROR(stream_->Synchronize());
    stream_->thread_pool()->ParallelFor(
        count, 1, [&](int64_t first, int64_t last) {
          for (int64_t i = first; i < last; ++i) {
            // On worker threads, where nothing else would catch.
            LogitRow& row = batch_.rows[static_cast<size_t>(begin + i)];
            const absl::Status status = Caught([&] {
              return SampleRow(row,
                               absl::MakeSpan(logits_.as<float>() + i * vocab,
                                              static_cast<size_t>(vocab)));
            });
            if (!status.ok()) row.status = status;
          }
        });
  }
  for (const LogitRow& row : batch_.rows)
    info.sampled_tokens += row.samples ? 1 : 0;
  return absl::OkStatus();
}

absl::Status ModelRunner::SampleRow(LogitRow& row, absl::Span<float> logits) {
  const Request& request = *batch_.items[static_cast<size_t>(row.item)].request;
  if (row.emits) row.logits.assign(logits.begin(), logits.end());
  if (row.scored >= 0) row.score = LogProbOf(logits, row.scored);
  if (!row.samples) return absl::OkStatus();
  auto sample = request.sampler.Sample(logits);
  if (!sample.ok()) return absl::DataLossError(sample.status().message());
  row.sample = *std::move(sample);
  return absl::OkStatus();
}

void ModelRunner::Commit(const absl::Status& executed) {
  size_t reserved = 0;
  for (size_t i = 0; i < batch_.items.size(); ++i) {
    BatchItem& item = batch_.items[i];
    if (item.status.ok()) {
      KvReservation& reservation = batch_.reservations[reserved++];
      item.status = executed;
      if (item.status.ok()) reservation.Commit(item.plan.num_tokens);
    }
    const absl::Status status = Caught([&] {
      results_[i] = CommitItem(item);
      return absl::OkStatus();
    });
    if (!status.ok()) results_[i] = Fail(*item.request, status);
  }
  // Uncommitted reservations refer to tables that End() may take away below.
  batch_.reservations.clear();
  const absl::Status committed = scheduler_->Commit(plan_, results_);
  INLAY_DCHECK(committed.ok());
  static_cast<void>(committed);
  for (size_t i = 0; i < batch_.items.size(); ++i) {
    Request& request = *batch_.items[i].request;
    request.in_flight = false;
    if (results_[i].finished || request.cancelled) End(request);
  }
}

StepResult ModelRunner::CommitItem(BatchItem& item) {
  Request& request = *item.request;
  StepResult result;
  if (!item.status.ok()) {
    result = Fail(request, item.status);
    result.computed = false;
    return result;
  }
  // Cancelled while it was computed: what came out is not shown any more.
  if (request.cancelled) return result;
  for (int32_t r = item.first_row; r < item.last_row; ++r) {
    const LogitRow& row = batch_.rows[static_cast<size_t>(r)];
    if (!row.status.ok()) return Fail(request, row.status);
  }
  EmitRows(item);
  const int64_t end = item.plan.first_token + item.plan.num_tokens;
  request.delivered_end = std::max(request.delivered_end, end);
  if (!item.plan.samples) return result;
  if (request.max_new_tokens == 0) {
    request.finish.reason = FinishReason::kLength;
    result.finished = true;
    return result;
  }
  const LogitRow& row = batch_.rows[static_cast<size_t>(item.last_row - 1)];
  result.tokens_appended = 1;
  result.finished = TakeToken(request, row.sample);
  return result;
}

StepResult ModelRunner::Fail(Request& request, const absl::Status& status) {
  request.finish.status = status;
  request.finish.reason = FinishReason::kError;
  StepResult result;
  result.finished = true;
  return result;
}

bool ModelRunner::TakeToken(Request& request, const SampleResult& sample) {
  FinishInfo& finish = request.finish;
  request.session->log.push_back(sample.token);
  request.sampler.Observe(sample.token);
  if (finish.generated_tokens++ == 0) {
    finish.first_token_us = Microseconds(absl::Now() - request.submitted);
  }
  const auto contains = [&](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), sample.token) != ids.end();
  };
  if (contains(request.options.stop_tokens) ||
      (!request.options.ignore_eos && contains(loaded_->generation.eos_ids))) {
    finish.reason = FinishReason::kStop;
    finish.stop_token = sample.token;
    return true;
  }
  if (request.output.Push(sample)) {
    finish.reason = FinishReason::kStop;
    finish.stop_string = request.output.matched_stop();
    return true;
  }
  Event event = MakeEvent(request, EventKind::kTokens);
  if (request.output.TakeInto(request.options.sampling.num_logprobs, event)) {
    context_.events->Push(std::move(event));
  }
  if (finish.generated_tokens < static_cast<uint64_t>(request.max_new_tokens)) {
    return false;
  }
  finish.reason = FinishReason::kLength;
  return true;
}

void ModelRunner::EmitRows(BatchItem& item) {
  const Request& request = *item.request;
  Event scores = MakeEvent(request, EventKind::kScores);
  for (int32_t r = item.first_row; r < item.last_row; ++r) {
    LogitRow& row = batch_.rows[static_cast<size_t>(r)];
    if (row.emits) {
      Event event = MakeEvent(request, EventKind::kLogits);
      event.position = row.position;
      event.values = std::move(row.logits);
      context_.events->Push(std::move(event));
    }
    if (row.scored >= 0) {
      if (scores.values.empty()) scores.position = row.position + 1;
      scores.values.push_back(row.score);
    }
  }
  if (!scores.values.empty()) context_.events->Push(std::move(scores));
}

Event ModelRunner::MakeEvent(const Request& request, EventKind kind) const {
  Event event;
  event.kind = kind;
  event.request = request.id;
  event.tag = request.options.tag;
  event.user_data = request.options.user_data;
  return event;
}

void ModelRunner::End(Request& request) {
  FinishInfo& finish = request.finish;
  if (request.cancelled) {
    finish.reason = FinishReason::kCancelled;
    finish.status = absl::CancelledError("the request was cancelled");
  }
  request.output.Finish();
  Event text = MakeEvent(request, EventKind::kTokens);
  if (request.output.TakeInto(request.options.sampling.num_logprobs, text)) {
    context_.events->Push(std::move(text));
  }
  finish.total_us = Microseconds(absl::Now() - request.submitted);
  switch (finish.reason) {
    case FinishReason::kStop:
    case FinishReason::kLength:
      ++stats_.finished;
      break;
    case FinishReason::kCancelled:
      ++stats_.cancelled;
      break;
    case FinishReason::kError:
      ++stats_.failed;
      context_.log(LogLevel::kWarning,
                   absl::StrFormat("request %d failed: %s", request.id,
                                   finish.status.ToString()));
      break;
  }
  Event event = MakeEvent(request, EventKind::kFinished);
  event.finish = finish;
  event.message = std::string(finish.status.message());

  Session& session = *request.session;
  session.active = 0;
  requests_.erase(request.id);
  if (session.released) {
    sessions_.erase(session.id);
  } else {
    scheduler_->SetIdle(session.id, &session.table);
  }
  // Last: whoever sees the end finds the session idle.
  context_.events->Push(std::move(event));
}

void ModelRunner::CheckInvariantsInDebug() {
#ifndef NDEBUG
  INLAY_DCHECK(CheckInvariants(*scheduler_, *pool_).ok());
  if (requests_.empty() && sessions_.empty()) {
    INLAY_DCHECK(pool_->num_used() == 0);
  }
#endif
}

}  // namespace inlay
