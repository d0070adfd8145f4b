// The C ABI of sessions and requests.
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "api/src/request_input.h"
#include "api/src/shim.h"
#include "memory/formatted_string.h"

namespace inlay::api {
namespace {

absl::Status SetStops(const inlay_request_options& options,
                      RequestOptions* result) {
  INLAY_RETURN_IF_ERROR(
      CheckInput(options.stop_tokens, options.num_stop_tokens, "stop_tokens"));
  INLAY_RETURN_IF_ERROR(CheckInput(options.stop_strings,
                                   options.num_stop_strings, "stop_strings"));
  if (options.num_stop_strings > kMaxStops) {
    return absl::InvalidArgumentError(
        FormattedString("num_stop_strings is %d, allowed: 0 to %d",
                        options.num_stop_strings, kMaxStops));
  }
  result->stop_tokens.assign(options.stop_tokens,
                             options.stop_tokens + options.num_stop_tokens);
  for (size_t i = 0; i < options.num_stop_strings; ++i) {
    INLAY_RETURN_IF_ERROR(
        CheckPointer(options.stop_strings[i], "an entry of stop_strings"));
    result->stop_strings.emplace_back(options.stop_strings[i]);
  }
  return absl::OkStatus();
}

absl::Status SetSampling(const inlay_request_options& options,
                         SamplingParams* sampling) {
  sampling->temperature = options.temperature;
  sampling->top_k = options.top_k;
  sampling->top_p = options.top_p;
  sampling->min_p = options.min_p;
  sampling->repetition_penalty = options.repetition_penalty;
  sampling->frequency_penalty = options.frequency_penalty;
  sampling->presence_penalty = options.presence_penalty;
  sampling->seed = options.seed;
  sampling->num_logprobs = options.num_logprobs;
  INLAY_RETURN_IF_ERROR(
      CheckInput(options.logit_bias, options.num_logit_bias, "logit_bias"));
  for (size_t i = 0; i < options.num_logit_bias; ++i) {
    const inlay_logit_bias& entry = options.logit_bias[i];
    if (std::isinf(entry.bias) && entry.bias < 0) {
      sampling->banned_tokens.push_back(entry.token);
    } else {
      sampling->logit_bias.emplace_back(entry.token, entry.bias);
    }
  }
  return absl::OkStatus();
}

absl::Status SetEmbedding(const inlay_request_options& options,
                          RequestOptions* result) {
  INLAY_RETURN_IF_ERROR(
      CheckEnum(options.embedding, INLAY_EMBEDDING_LAST, "embedding"));
  INLAY_RETURN_IF_ERROR(
      CheckEnum(static_cast<int32_t>(options.normalise), 1, "normalise"));
  constexpr Pooling kPoolings[] = {Pooling::kNone, Pooling::kNone,
                                   Pooling::kMean, Pooling::kCls,
                                   Pooling::kLast};
  result->pooling = kPoolings[options.embedding];
  result->normalise = options.normalise != 0;
  result->embedding_defaults = options.embedding == INLAY_EMBEDDING_DEFAULT;
  return absl::OkStatus();
}

absl::Status SetClassification(const inlay_request_options& options,
                               RequestOptions* result) {
  INLAY_RETURN_IF_ERROR(CheckEnum(
      options.classification, INLAY_CLASSIFICATION_SOFTMAX, "classification"));
  constexpr LabelActivation kActivations[] = {
      LabelActivation::kIdentity, LabelActivation::kIdentity,
      LabelActivation::kIdentity, LabelActivation::kSigmoid,
      LabelActivation::kSoftmax};
  result->classifies = options.classification != INLAY_CLASSIFICATION_NONE;
  result->activation = kActivations[options.classification];
  result->classification_defaults =
      options.classification == INLAY_CLASSIFICATION_DEFAULT;
  return absl::OkStatus();
}

absl::Status SetPair(const inlay_request_options& options,
                     RequestOptions* result) {
  INLAY_RETURN_IF_ERROR(
      CheckInput(options.text_pair, options.text_pair_bytes, "text_pair"));
  if (options.text_pair != nullptr) {
    if (options.text == nullptr) {
      return absl::InvalidArgumentError(
          "text_pair is set without text, allowed: both");
    }
    result->is_pair = true;
    result->text_pair.assign(options.text_pair, options.text_pair_bytes);
  }
  if (options.token_types == nullptr) return absl::OkStatus();
  if (options.tokens == nullptr) {
    return absl::InvalidArgumentError(
        "token_types is set without tokens, allowed: both, as many");
  }
  result->token_types.assign(options.token_types,
                             options.token_types + options.num_tokens);
  return absl::OkStatus();
}

absl::StatusOr<RequestOptions> ToRequestOptions(
    const inlay_request_options& options) {
  INLAY_RETURN_IF_ERROR(CheckEnum(options.resume, 1, "resume"));
  INLAY_RETURN_IF_ERROR(
      CheckEnum(options.input_mode, INLAY_INPUT_REPLACE, "input_mode"));
  INLAY_RETURN_IF_ERROR(
      CheckEnum(options.logits, INLAY_LOGITS_GENERATED, "logits"));
  INLAY_RETURN_IF_ERROR(CheckEnum(options.ignore_eos, 1, "ignore_eos"));
  INLAY_RETURN_IF_ERROR(CheckEnum(options.score_prompt, 1, "score_prompt"));
  INLAY_RETURN_IF_ERROR(CheckInput(options.logits_positions,
                                   options.num_logits_positions,
                                   "logits_positions"));
  if (options.num_logprobs > 128) {
    return absl::InvalidArgumentError(FormattedString(
        "num_logprobs is %d, allowed: -1 to 128", options.num_logprobs));
  }
  RequestOptions result;
  INLAY_RETURN_IF_ERROR(SetInput(options, &result));
  INLAY_RETURN_IF_ERROR(SetPair(options, &result));
  result.mode = options.input_mode == INLAY_INPUT_APPEND ? InputMode::kAppend
                                                         : InputMode::kReplace;
  INLAY_RETURN_IF_ERROR(SetStops(options, &result));
  INLAY_RETURN_IF_ERROR(SetSampling(options, &result.sampling));
  INLAY_RETURN_IF_ERROR(SetEmbedding(options, &result));
  INLAY_RETURN_IF_ERROR(SetClassification(options, &result));
  result.max_tokens = options.max_tokens;
  result.ignore_eos = options.ignore_eos != 0;
  result.logits = static_cast<LogitsMode>(options.logits);
  result.logits_positions.assign(
      options.logits_positions,
      options.logits_positions + options.num_logits_positions);
  result.score_prompt = options.score_prompt != 0;
  result.priority = options.priority;
  result.user_data = options.user_data;
  result.resume = options.resume != 0;
  result.deadline_us = options.deadline_us;
  result.share_key = options.share_key;
  return result;
}

}  // namespace
}  // namespace inlay::api

using namespace inlay::api;  // NOLINT: the shim's own names

inlay_status inlay_session_create(inlay_model* model, inlay_session** session,
                                  inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(session, "session"));
    *session = nullptr;
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetRunnableModel(model));
    INLAY_ASSIGN_OR_RETURN(const inlay::SessionId id,
                           handle->loaded.runner->CreateSession());
    *session = AddSession(handle->engine, handle->loaded.runner, id);
    return absl::OkStatus();
  });
}

void inlay_session_release(inlay_session* session) {
  GuardVoid([&] {
    auto handle = TakeHandle<SessionHandle>(session);
    if (handle == nullptr) return;
    handle->runner->ReleaseSession(handle->id);
    ReleaseAndWake(std::move(handle));
  });
}

inlay_status inlay_session_fork(inlay_session* session, inlay_session** fork,
                                inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(fork, "fork"));
    *fork = nullptr;
    INLAY_ASSIGN_OR_RETURN(const auto handle,
                           GetHandle<SessionHandle>(session));
    INLAY_ASSIGN_OR_RETURN(const inlay::SessionId id,
                           handle->runner->Fork(handle->id));
    *fork = AddSession(handle->engine, handle->runner, id);
    return absl::OkStatus();
  });
}

inlay_status inlay_session_rewind(inlay_session* session, size_t num_tokens,
                                  inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const auto handle,
                           GetHandle<SessionHandle>(session));
    return handle->runner->Rewind(handle->id, num_tokens);
  });
}

void inlay_session_info_init(inlay_session_info* info) {
  if (info != nullptr) InitStruct(info);
}

inlay_status inlay_session_get_info(inlay_session* session,
                                    inlay_session_info* info,
                                    inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const auto handle,
                           GetHandle<SessionHandle>(session));
    INLAY_RETURN_IF_ERROR(CheckResult(info, "inlay_session_info"));
    INLAY_ASSIGN_OR_RETURN(const inlay::SessionInfo got,
                           handle->runner->GetSessionInfo(handle->id));
    inlay_session_info result;
    inlay_session_info_init(&result);
    result.busy = got.busy ? 1 : 0;
    result.num_tokens = got.num_tokens;
    result.num_cached = got.num_cached;
    WriteResult(result, info);
    return absl::OkStatus();
  });
}

inlay_status inlay_session_tokens(inlay_session* session, int32_t* tokens,
                                  size_t capacity, size_t* num_tokens,
                                  inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(num_tokens, "num_tokens"));
    *num_tokens = 0;
    INLAY_ASSIGN_OR_RETURN(const auto handle,
                           GetHandle<SessionHandle>(session));
    INLAY_RETURN_IF_ERROR(CheckArray(tokens, capacity, "tokens"));
    INLAY_ASSIGN_OR_RETURN(const std::vector<int32_t> log,
                           handle->runner->Tokens(handle->id));
    *num_tokens = log.size();
    std::copy_n(log.begin(), std::min(capacity, log.size()), tokens);
    return absl::OkStatus();
  });
}

inlay_status inlay_session_submit(inlay_session* session,
                                  const inlay_request_options* options,
                                  inlay_request** request,
                                  inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(request, "request"));
    *request = nullptr;
    INLAY_ASSIGN_OR_RETURN(const auto handle,
                           GetHandle<SessionHandle>(session));
    INLAY_RETURN_IF_ERROR(CheckPointer(options, "options"));
    inlay_request_options read;
    inlay_request_options_init(&read);
    INLAY_RETURN_IF_ERROR(ReadOptions(options, "inlay_request_options", &read));
    INLAY_ASSIGN_OR_RETURN(inlay::RequestOptions converted,
                           ToRequestOptions(read));
    // The handle is in the table before the request can produce events, which
    // carry it.
    const auto object =
        std::make_shared<RequestHandle>(handle->engine, handle->runner);
    const uint64_t number = NewHandleNumber(HandleTraits<RequestHandle>::kType);
    InsertHandle(number, object);
    auto withdraw = absl::MakeCleanup([&] {
      object->Resolve(RequestHandle::kNone);
      EraseHandle(number);
    });
    converted.tag = number;
    INLAY_ASSIGN_OR_RETURN(
        const inlay::RequestId id,
        handle->runner->Submit(handle->id, std::move(converted)));
    std::move(withdraw).Cancel();
    object->Resolve(id);
    *request = reinterpret_cast<inlay_request*>(number);
    return absl::OkStatus();
  });
}

void inlay_quote_init(inlay_quote* quote) {
  if (quote != nullptr) InitStruct(quote);
}

inlay_status inlay_request_quote(inlay_session* session,
                                 const inlay_request_options* options,
                                 int32_t reserve, inlay_quote* quote,
                                 inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const auto handle,
                           GetHandle<SessionHandle>(session));
    INLAY_RETURN_IF_ERROR(CheckPointer(options, "options"));
    INLAY_RETURN_IF_ERROR(CheckResult(quote, "inlay_quote"));
    INLAY_RETURN_IF_ERROR(CheckEnum(reserve, 1, "reserve"));
    inlay_request_options read;
    inlay_request_options_init(&read);
    INLAY_RETURN_IF_ERROR(ReadOptions(options, "inlay_request_options", &read));
    INLAY_ASSIGN_OR_RETURN(inlay::RequestOptions converted,
                           ToRequestOptions(read));
    INLAY_ASSIGN_OR_RETURN(
        const inlay::RequestQuote got,
        handle->runner->Quote(handle->id, std::move(converted), reserve != 0));
    inlay_quote result;
    inlay_quote_init(&result);
    result.fits = got.fits ? 1 : 0;
    result.fits_now = got.fits_now ? 1 : 0;
    result.reserved = got.reserved ? 1 : 0;
    result.prompt_tokens = got.prompt_tokens;
    result.cached_tokens = got.cached_tokens;
    result.kv_bytes = got.kv_bytes;
    result.new_kv_bytes = got.new_kv_bytes;
    result.first_token_us = got.first_token_us;
    WriteResult(result, quote);
    return absl::OkStatus();
  });
}

inlay_status inlay_request_cancel(inlay_request* request, inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const auto handle,
                           GetHandle<RequestHandle>(request));
    return handle->runner->Cancel(handle->id());
  });
}

void inlay_request_release(inlay_request* request) {
  GuardVoid([&] {
    const auto handle = TakeHandle<RequestHandle>(request);
    if (handle == nullptr) return;
    // Closed engines have ended it already.
    static_cast<void>(handle->runner->Cancel(handle->id()));
    handle->engine->events().Drop(handle->id());
  });
}
