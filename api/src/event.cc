// The C ABI of events.
#include <utility>

#include "api/src/shim.h"

namespace inlay::api {
namespace {

inlay_event_info ToEventInfo(const Event& event) {
  inlay_event_info info;
  inlay_event_info_init(&info);
  info.kind = static_cast<int32_t>(event.kind);
  info.request = reinterpret_cast<inlay_request*>(event.tag);
  info.user_data = event.user_data;
  info.tokens = event.tokens.data();
  info.num_tokens = event.tokens.size();
  info.text = event.text.c_str();
  info.text_bytes = event.text.size();
  info.bytes = event.bytes.data();
  info.num_bytes = event.bytes.size();
  static_assert(sizeof(inlay_token_logprob) == sizeof(EventLogprob));
  info.logprobs =
      reinterpret_cast<const inlay_token_logprob*>(event.logprobs.data());
  info.num_logprobs = event.logprobs.size();
  info.top_logprobs = event.top_logprobs;
  info.position = event.position;
  if (event.kind == EventKind::kLogits) {
    info.logits = event.values.data();
    info.num_logits = event.values.size();
  } else if (event.kind == EventKind::kEmbedding) {
    info.embedding = event.values.data();
    info.num_embedding = event.values.size();
  } else if (event.kind == EventKind::kClassification) {
    info.logits = event.values.data();
    info.num_logits = event.values.size();
    info.scores = event.scores.data();
    info.num_scores = event.scores.size();
  } else {
    info.scores = event.values.data();
    info.num_scores = event.values.size();
  }
  const FinishInfo& finish = event.finish;
  info.finish_reason = static_cast<int32_t>(finish.reason);
  info.status = ToStatus(finish.status.code());
  // Status messages are not NUL-terminated by contract; the event keeps a copy.
  info.message = event.message.c_str();
  info.stop_token = finish.stop_token;
  info.stop_string = finish.stop_string;
  info.prompt_tokens = finish.prompt_tokens;
  info.cached_tokens = finish.cached_tokens;
  info.generated_tokens = finish.generated_tokens;
  info.queue_us = finish.queue_us;
  info.first_token_us = finish.first_token_us;
  info.total_us = finish.total_us;
  return info;
}

// Takes an event by `take` and hands it out. The handle is made first: an event
// taken is never lost for want of memory.
template <typename Take>
absl::Status HandOut(Take&& take, inlay_event** handle) {
  auto object = std::make_shared<EventHandle>();
  const uint64_t number = NewHandleNumber(HandleTraits<EventHandle>::kType);
  InsertHandle(number, object);
  absl::StatusOr<Event> event = take();
  if (!event.ok()) {
    EraseHandle(number);
    return event.status();
  }
  object->event = *std::move(event);
  *handle = reinterpret_cast<inlay_event*>(number);
  return absl::OkStatus();
}

}  // namespace
}  // namespace inlay::api

using namespace inlay::api;  // NOLINT: the shim's own names

void(inlay_event_info_init)(inlay_event_info* info) {
  inlay_event_info_init_sized(info, kFirstSize<inlay_event_info>);
}

void inlay_event_info_init_sized(inlay_event_info* info, size_t size) {
  inlay_event_info defaults;
  InitStruct(&defaults);
  defaults.stop_token = -1;
  defaults.stop_string = -1;
  InitSized(defaults, info, size);
}

inlay_status inlay_event_next(inlay_engine* engine, uint64_t timeout_us,
                              inlay_event** event, inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(event, "event"));
    *event = nullptr;
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetHandle<EngineHandle>(engine));
    return HandOut([&] { return handle->engine->events().Next(timeout_us); },
                   event);
  });
}

inlay_status inlay_request_next_event(inlay_request* request,
                                      uint64_t timeout_us, inlay_event** event,
                                      inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(event, "event"));
    *event = nullptr;
    INLAY_ASSIGN_OR_RETURN(const auto handle,
                           GetHandle<RequestHandle>(request));
    return HandOut(
        [&] {
          return handle->engine->events().NextOf(handle->id(), timeout_us);
        },
        event);
  });
}

inlay_status inlay_event_get_info(const inlay_event* event,
                                  inlay_event_info* info, inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetHandle<EventHandle>(event));
    INLAY_RETURN_IF_ERROR(CheckResult(info, "inlay_event_info"));
    WriteResult(ToEventInfo(handle->event), info);
    return absl::OkStatus();
  });
}

void inlay_event_release(inlay_event* event) {
  GuardVoid([&] { TakeHandle<EventHandle>(event); });
}
