// Statuses, errors, buffers and versions of the C ABI.
#include <utility>

#include "api/src/shim.h"
#include "core/text/utf8.h"

namespace inlay::api {

#define INLAY_STATUS(name, value, code) \
  static_assert(INLAY_##name == (value), "inlay.h and status.def differ");
#include "api/status.def"
#undef INLAY_STATUS

inlay_status ToStatus(absl::StatusCode code) {
  switch (code) {
#define INLAY_STATUS(name, value, absl_code) \
  case absl::StatusCode::absl_code:          \
    return INLAY_##name;
#include "api/status.def"
#undef INLAY_STATUS
    default:
      return INLAY_INTERNAL;
  }
}

inlay_status Report(const absl::Status& status, inlay_error** error) noexcept {
  const inlay_status code = ToStatus(status.code());
  const bool is_answer = code == INLAY_TIMEOUT || code == INLAY_END;
  if (status.ok() || is_answer || error == nullptr) return code;
  try {
    // Messages quote paths, which are bytes.
    std::string message;
    AppendValidUtf8(std::string(status.message()), &message);
    *error = AddHandle(ErrorHandle{code, std::move(message)});
  } catch (...) {
    // Without memory for the message the code must do.
  }
  return code;
}

}  // namespace inlay::api

using inlay::api::BufferHandle;
using inlay::api::ErrorHandle;
using inlay::api::GetHandle;
using inlay::api::GuardVoid;
using inlay::api::TakeHandle;

#define INLAY_STRINGIZE_INNER(x) #x
#define INLAY_STRINGIZE(x) INLAY_STRINGIZE_INNER(x)

const char* inlay_version(void) {
  return INLAY_STRINGIZE(INLAY_VERSION_MAJOR) "." INLAY_STRINGIZE(
      INLAY_VERSION_MINOR) "." INLAY_STRINGIZE(INLAY_VERSION_PATCH);
}

uint32_t inlay_abi_version(void) { return INLAY_ABI_VERSION; }

const char* inlay_status_name(inlay_status status) {
  switch (status) {
#define INLAY_STATUS(name, value, code) \
  case value:                           \
    return "INLAY_" #name;
#include "api/status.def"
#undef INLAY_STATUS
    default:
      return "unknown status";
  }
}

inlay_status inlay_error_status(const inlay_error* error) {
  inlay_status status = INLAY_INVALID_HANDLE;
  GuardVoid([&] {
    const auto handle = GetHandle<ErrorHandle>(error);
    if (handle.ok()) status = (*handle)->status;
  });
  return status;
}

const char* inlay_error_message(const inlay_error* error) {
  const char* message = "";
  GuardVoid([&] {
    const auto handle = GetHandle<ErrorHandle>(error);
    if (handle.ok()) message = (*handle)->message.c_str();
  });
  return message;
}

void inlay_error_release(inlay_error* error) {
  GuardVoid([&] { TakeHandle<ErrorHandle>(error); });
}

const char* inlay_buffer_data(const inlay_buffer* buffer) {
  const char* data = "";
  GuardVoid([&] {
    const auto handle = GetHandle<BufferHandle>(buffer);
    if (handle.ok()) data = (*handle)->bytes.c_str();
  });
  return data;
}

size_t inlay_buffer_size(const inlay_buffer* buffer) {
  size_t size = 0;
  GuardVoid([&] {
    const auto handle = GetHandle<BufferHandle>(buffer);
    if (handle.ok()) size = (*handle)->bytes.size();
  });
  return size;
}

void inlay_buffer_release(inlay_buffer* buffer) {
  GuardVoid([&] { TakeHandle<BufferHandle>(buffer); });
}
