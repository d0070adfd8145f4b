// The C ABI of named prefixes.
#include <utility>

#include "api/src/request_input.h"
#include "api/src/shim.h"

namespace inlay::api {
namespace {

// A handle for a prefix that `model` has retained for it.
inlay_prefix* AddPrefix(const ModelHandle& model, PrefixId id) {
  const std::shared_ptr<ModelRunner>& runner = model.loaded.runner;
  return AddHandleOr(PrefixHandle{model.engine, runner, id},
                     [&] { runner->ReleasePrefix(id); });
}

}  // namespace
}  // namespace inlay::api

using namespace inlay::api;  // NOLINT: the shim's own names

void inlay_prefix_options_init(inlay_prefix_options* options) {
  if (options == nullptr) return;
  InitStruct(options);
  options->pin = 1;
  options->text_flags = INLAY_TEXT_ADD_SPECIAL | INLAY_TEXT_PARSE_SPECIAL;
}

inlay_status inlay_prefix_create(inlay_model* model, const char* name,
                                 const inlay_prefix_options* options,
                                 inlay_prefix** prefix, inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(prefix, "prefix"));
    *prefix = nullptr;
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetRunnableModel(model));
    INLAY_RETURN_IF_ERROR(CheckPointer(name, "name"));
    INLAY_RETURN_IF_ERROR(CheckPointer(options, "options"));
    inlay_prefix_options read;
    inlay_prefix_options_init(&read);
    INLAY_RETURN_IF_ERROR(ReadOptions(options, "inlay_prefix_options", &read));
    INLAY_RETURN_IF_ERROR(CheckEnum(read.pin, 1, "pin"));
    inlay::RequestOptions input;
    INLAY_RETURN_IF_ERROR(SetInput(read, &input));
    INLAY_ASSIGN_OR_RETURN(
        const inlay::PrefixId id,
        handle->loaded.runner->CreatePrefix(name, std::move(input),
                                            read.pin != 0, read.budget_bytes));
    *prefix = AddPrefix(*handle, id);
    return absl::OkStatus();
  });
}

inlay_status inlay_prefix_find(inlay_model* model, const char* name,
                               inlay_prefix** prefix, inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(prefix, "prefix"));
    *prefix = nullptr;
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetRunnableModel(model));
    INLAY_RETURN_IF_ERROR(CheckPointer(name, "name"));
    INLAY_ASSIGN_OR_RETURN(const inlay::PrefixId id,
                           handle->loaded.runner->RetainPrefix(name));
    *prefix = AddPrefix(*handle, id);
    return absl::OkStatus();
  });
}

inlay_status inlay_prefix_pin(inlay_prefix* prefix, int32_t pinned,
                              inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetHandle<PrefixHandle>(prefix));
    INLAY_RETURN_IF_ERROR(CheckEnum(pinned, 1, "pinned"));
    return handle->runner->PinPrefix(handle->id, pinned != 0);
  });
}

inlay_status inlay_prefix_open(inlay_prefix* prefix, inlay_session** session,
                               inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(session, "session"));
    *session = nullptr;
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetHandle<PrefixHandle>(prefix));
    INLAY_ASSIGN_OR_RETURN(const inlay::SessionId id,
                           handle->runner->OpenPrefix(handle->id));
    *session = AddSession(handle->engine, handle->runner, id);
    return absl::OkStatus();
  });
}

void inlay_prefix_info_init(inlay_prefix_info* info) {
  if (info != nullptr) InitStruct(info);
}

inlay_status inlay_prefix_get_info(inlay_prefix* prefix,
                                   inlay_prefix_info* info,
                                   inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetHandle<PrefixHandle>(prefix));
    INLAY_RETURN_IF_ERROR(CheckResult(info, "inlay_prefix_info"));
    INLAY_ASSIGN_OR_RETURN(const inlay::PrefixInfo got,
                           handle->runner->GetPrefixInfo(handle->id));
    inlay_prefix_info result;
    inlay_prefix_info_init(&result);
    result.pinned = got.pinned ? 1 : 0;
    result.num_tokens = got.num_tokens;
    result.num_cached = got.num_cached;
    result.kv_bytes = got.kv_bytes;
    WriteResult(result, info);
    return absl::OkStatus();
  });
}

void inlay_prefix_release(inlay_prefix* prefix) {
  GuardVoid([&] {
    auto handle = TakeHandle<PrefixHandle>(prefix);
    if (handle == nullptr) return;
    handle->runner->ReleasePrefix(handle->id);
    ReleaseAndWake(std::move(handle));
  });
}
