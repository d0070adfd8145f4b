// ModelRunner::Step's last part: what a step gave becomes tokens, events and
// ends of requests.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/engine/clock.h"
#include "core/engine/model_runner.h"
#include "memory/caught.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

void ModelRunner::CommitItems(const absl::Status& executed) {
  size_t reserved = 0;
  for (size_t i = 0; i < batch_.items.size(); ++i) {
    BatchItem& item = batch_.items[i];
    if (item.status.ok()) {
      KvTablesReservation& reservation = batch_.reservations[reserved++];
      item.status = executed;
      if (item.status.ok()) {
        reservation.Commit(item.plan.num_tokens);
        PublishKv(*item.request->session);
      }
    }
    const absl::Status status = Caught([&] {
      results_[i] = CommitItem(item);
      return absl::OkStatus();
    });
    if (!status.ok()) results_[i] = Fail(*item.request, status);
  }
  // Uncommitted reservations refer to tables that End() may take away below.
  batch_.reservations.clear();
}

void ModelRunner::CommitPlan(double elapsed_us) {
  const absl::Status committed =
      Caught([&] { return scheduler_->Commit(plan_, results_, elapsed_us); });
  INLAY_DCHECK(committed.ok());
  if (!committed.ok()) return StartOver(committed);
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
    if (!item.pooled.ok()) return Fail(request, item.pooled.status());
    if (request.options.classifies) {
      const bool pools = request.pooler.active();
      INLAY_DCHECK(pools || item.last_row > item.first_row);
      const absl::Status status = EmitClassification(
          request,
          pools ? *std::move(item.pooled)
                : std::move(
                      batch_.rows[static_cast<size_t>(item.first_row)].logits));
      if (!status.ok()) return Fail(request, status);
    } else if (request.pooler.active()) {
      Event event = MakeEvent(request, EventKind::kEmbedding);
      event.values = *std::move(item.pooled);
      context_.events->Push(std::move(event));
    }
    request.finish.reason = FinishReason::kLength;
    result.finished = true;
    return result;
  }
  const LogitRow& row = batch_.rows[static_cast<size_t>(item.last_row - 1)];
  result.tokens_appended = 1;
  result.finished = TakeToken(request, row.sample);
  return result;
}

absl::Status ModelRunner::EmitClassification(const Request& request,
                                             std::vector<float> logits) {
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) continue;
    return NumericError(
        FormattedString("the logits of labels are not finite: label %d of %d "
                        "has %g",
                        i, logits.size(), logits[i]));
  }
  Event event = MakeEvent(request, EventKind::kClassification);
  event.scores = LabelScores(request.options.activation, logits);
  event.values = std::move(logits);
  context_.events->Push(std::move(event));
  return absl::OkStatus();
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
  request.session->mark.num_draws = request.sampler.state().num_generated;
  const SteadyTime now = Now();
  ++metrics_.generated_tokens;
  if (finish.generated_tokens++ == 0) {
    finish.first_token_us = MicrosecondsBetween(request.submitted, now);
    metrics_.time_to_first_token_us.Add(finish.first_token_us);
    context_.trace->FirstToken(context_.trace_model, request.id);
  } else {
    metrics_.inter_token_time_us.Add(
        MicrosecondsBetween(request.last_token, now));
  }
  request.last_token = now;
  if (absl::c_binary_search(request.options.stop_tokens, sample.token) ||
      (!request.options.ignore_eos &&
       absl::c_linear_search(loaded_->generation.eos_ids, sample.token))) {
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
    finish.status =
        StatusOf(absl::StatusCode::kCancelled, "the request was cancelled");
  }
  finish.total_us = MicrosecondsBetween(request.submitted, Now());
  if (request.session->warms == 0) CountEnd(request);

  // Out of the books first; then, for whoever sees the end, the session is
  // idle.
  const auto node = requests_.extract(request.id);
  Session& session = *request.session;
  session.active = 0;
  RetireKv(session);
  if (session.warms != 0) {
    static_cast<void>(Caught([&] {
      OnWarmed(session.warms);
      return absl::OkStatus();
    }));
  }
  if (session.released) EraseSession(session.id);
  const absl::Status emitted = Caught([&] {
    EmitEnd(request);
    return absl::OkStatus();
  });
  if (!emitted.ok()) {
    // The end always arrives: its place in the queue was made at submit. It
    // must say that what came before it is not all.
    if (finish.status.ok()) Fail(request, emitted);
    Event event = MakeEvent(request, EventKind::kFinished);
    event.finish = finish;
    context_.events->Push(std::move(event));
  }
}

void ModelRunner::CountEnd(const Request& request) {
  const FinishInfo& finish = request.finish;
  switch (finish.reason) {
    case FinishReason::kStop:
      ++metrics_.requests_stop;
      break;
    case FinishReason::kLength:
      ++metrics_.requests_length;
      break;
    case FinishReason::kCancelled:
      ++metrics_.requests_cancelled;
      break;
    case FinishReason::kError:
      ++(absl::IsDeadlineExceeded(finish.status) ? metrics_.requests_deadline
                                                 : metrics_.requests_failed);
      break;
  }
  metrics_.request_time_us.Add(finish.total_us);
  context_.trace->Finished(context_.trace_model, request.id, finish.reason,
                           static_cast<int64_t>(finish.generated_tokens));
}

void ModelRunner::EmitEnd(Request& request) {
  request.output.Finish();
  Event text = MakeEvent(request, EventKind::kTokens);
  if (request.output.TakeInto(request.options.sampling.num_logprobs, text)) {
    context_.events->Push(std::move(text));
  }
  Event event = MakeEvent(request, EventKind::kFinished);
  event.finish = request.finish;
  event.message = std::string(request.finish.status.message());
  if (request.finish.reason == FinishReason::kError) {
    // Not StrFormat: without memory it terminates, it appends in a destructor.
    failures_.push_back(absl::StrCat(
        "request ", request.id, " failed: ", request.finish.status.ToString()));
  }
  context_.events->Push(std::move(event));
}

void ModelRunner::EndAll(const absl::Status& why) {
  {
    MutexLock lock(&mu_);
    if (closed_ || requests_.empty()) return;
    StartOver(why);
  }
  LogFailures();
}

void ModelRunner::StartOver(const absl::Status& why) {
  DropAhead();
  fetches_ = false;
  if (recorder_ != nullptr) recorder_->Fail(why);
  while (!requests_.empty()) {
    Request& request = *requests_.begin()->second;
    Fail(request, why);
    KvCache::Clear(&request.session->kv);
    End(request);
  }
  const absl::Status restarted = Caught([&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(scheduler_, NewScheduler());
    return absl::OkStatus();
  });
  // With no memory for an empty scheduler, every later call says so.
  if (!restarted.ok()) closed_ = true;
}

}  // namespace inlay
