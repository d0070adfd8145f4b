// What every function of the C shim does: convert, call, map the status, and
// let nothing escape.
#ifndef INLAY_API_SRC_SHIM_H_
#define INLAY_API_SRC_SHIM_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "absl/status/status.h"
#include "api/src/handles.h"
#include "inlay/inlay.h"
#include "memory/caught.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::api {

inlay_status ToStatus(absl::StatusCode code);

// Reports `status` to the caller: its code, and an error object when one is
// wanted and there is something to say.
inlay_status Report(const absl::Status& status, inlay_error** error) noexcept;

// Runs `body` (returning absl::Status) with every exception caught.
template <typename Body>
inlay_status Guard(inlay_error** error, Body&& body) noexcept {
  if (error != nullptr) *error = nullptr;
  return Report(Caught(body), error);
}

// The same for functions that report nothing.
template <typename Body>
void GuardVoid(Body&& body) noexcept {
  try {
    body();
  } catch (...) {
  }
}

// The size of a struct in the first version that had it: callers built against
// that still pass it.
template <typename T>
inline constexpr size_t kFirstSize = sizeof(T);
template <>
inline constexpr size_t kFirstSize<inlay_quantize_options> =
    offsetof(inlay_quantize_options, method);
template <>
inline constexpr size_t kFirstSize<inlay_engine_options> =
    offsetof(inlay_engine_options, prefix_sharing);
template <>
inline constexpr size_t kFirstSize<inlay_step_info> = offsetof(inlay_step_info,
                                                               predicted_us);
template <>
inline constexpr size_t kFirstSize<inlay_model_options> =
    offsetof(inlay_model_options, host_cache_bytes);
template <>
inline constexpr size_t kFirstSize<inlay_model_info> =
    offsetof(inlay_model_info, embedding_size);
template <>
inline constexpr size_t kFirstSize<inlay_stats> = offsetof(inlay_stats,
                                                           kv_blocks_cached);
template <>
inline constexpr size_t kFirstSize<inlay_request_options> =
    offsetof(inlay_request_options, resume);

template <>
inline constexpr size_t kFirstSize<inlay_event_info> =
    offsetof(inlay_event_info, embedding);

// Reads a caller's options of any version. `options` holds the defaults; the
// fields the caller's header has are copied over them. A newer caller's extra
// fields must be zero: this library does not know them.
template <typename T>
absl::Status ReadOptions(const T* given, const char* name, T* options) {
  if (given == nullptr) return absl::OkStatus();
  const size_t size = given->struct_size;
  constexpr size_t kLargest = 1 << 16;
  if (size < kFirstSize<T> || size > kLargest) {
    return absl::InvalidArgumentError(FormattedString(
        "%s.struct_size is %d, allowed: %d, which %s_init() sets", name, size,
        sizeof(T), name));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (size > sizeof(T) &&
      std::any_of(bytes + sizeof(T), bytes + size,
                  [](unsigned char byte) { return byte != 0; })) {
    return absl::UnimplementedError(FormattedString(
        "%s has fields beyond byte %d that this version of the library does "
        "not know",
        name, sizeof(T)));
  }
  std::memcpy(options, given, std::min(size, sizeof(T)));
  return absl::OkStatus();
}

// Checks a caller's result struct before anything is done for it.
template <typename T>
absl::Status CheckResult(const T* result, const char* name) {
  if (result == nullptr) {
    return absl::InvalidArgumentError(FormattedString("%s is null", name));
  }
  if (result->struct_size < kFirstSize<T>) {
    return absl::InvalidArgumentError(FormattedString(
        "%s.struct_size is %d, allowed: %d, which %s_init() sets", name,
        result->struct_size, sizeof(T), name));
  }
  return absl::OkStatus();
}

// Fills as much of a result struct that CheckResult passed as the caller has,
// keeping its struct_size.
template <typename T>
void WriteResult(T value, T* result) {
  value.struct_size = result->struct_size;
  std::memcpy(result, &value, std::min<size_t>(sizeof(T), value.struct_size));
}

// Sets the first `size` bytes (what the caller has of the struct) to
// `defaults`.
template <typename T>
void InitSized(T defaults, T* value, size_t size) {
  if (value == nullptr || size < kFirstSize<T>) return;
  size = std::min(size, sizeof(T));
  defaults.struct_size = static_cast<uint32_t>(size);
  std::memcpy(value, &defaults, size);
}

template <typename T>
void InitStruct(T* value) {
  std::memset(value, 0, sizeof(T));
  value->struct_size = static_cast<uint32_t>(sizeof(T));
}

// `text` into the field of a result, cut to fit, with its final 0.
template <size_t kBytes>
void CopyText(const std::string& text, char (&field)[kBytes]) {
  const size_t length = std::min(text.size(), kBytes - 1);
  std::memcpy(field, text.data(), length);
  field[length] = 0;
}

// Drops a handle's object, and then lets the engine reclaim what only that
// held.
template <typename T>
void ReleaseAndWake(std::shared_ptr<T> handle) {
  const std::shared_ptr<Engine> engine = handle->engine;
  handle.reset();
  engine->Wake();
}

// A handle for a session that was just made.
inline inlay_session* AddSession(const std::shared_ptr<Engine>& engine,
                                 const std::shared_ptr<ModelRunner>& runner,
                                 SessionId id) {
  return AddHandleOr(SessionHandle{engine, runner, id},
                     [&] { runner->ReleaseSession(id); });
}

inline absl::Status CheckPointer(const void* pointer, const char* name) {
  if (pointer != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(FormattedString("%s is null", name));
}

// A counted array whose pointer may be null when the count is 0.
inline absl::Status CheckArray(const void* pointer, size_t count,
                               const char* name) {
  if (pointer != nullptr || count == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      FormattedString("%s is null, but its count is %d", name, count));
}

// The same for an array that is read: a count beyond any address space is a
// mistake that must not reach pointer arithmetic.
inline absl::Status CheckInput(const void* pointer, size_t count,
                               const char* name) {
  constexpr size_t kMost = size_t{1} << 40;
  if (count > kMost) {
    return absl::InvalidArgumentError(FormattedString(
        "the count of %s is %d, allowed: at most %d", name, count, kMost));
  }
  return CheckArray(pointer, count, name);
}

inline absl::Status CheckTextFlags(uint32_t flags, const char* name) {
  constexpr uint32_t kAll = INLAY_TEXT_ADD_SPECIAL | INLAY_TEXT_PARSE_SPECIAL |
                            INLAY_TEXT_SKIP_SPECIAL;
  if ((flags & ~kAll) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(FormattedString(
      "%s is %#x, allowed: INLAY_TEXT_* bits, %#x in all", name, flags, kAll));
}

// A model with weights: sessions run on it.
inline absl::StatusOr<std::shared_ptr<ModelHandle>> GetRunnableModel(
    inlay_model* model) {
  INLAY_ASSIGN_OR_RETURN(auto handle, GetHandle<ModelHandle>(model));
  if (handle->loaded.runner != nullptr) return handle;
  return absl::FailedPreconditionError(
      "the model was loaded with vocab_only: it has no weights to run");
}

inline absl::Status CheckEnum(int64_t value, int64_t last, const char* name) {
  if (value >= 0 && value <= last) return absl::OkStatus();
  return absl::InvalidArgumentError(
      FormattedString("%s is %d, allowed: 0 to %d", name, value, last));
}

}  // namespace inlay::api

#endif  // INLAY_API_SRC_SHIM_H_
