// The C ABI of saved sessions.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "api/src/shim.h"
#include "memory/durable_file.h"
#include "memory/mapped_file.h"

namespace inlay::api {
namespace {

// Larger than any KV cache of one session.
constexpr uint64_t kMostSnapshotBytes = uint64_t{1} << 42;

absl::Status RestoreInto(inlay_model* model, absl::Span<const std::byte> data,
                         inlay_session** session, inlay_restore_info* info) {
  INLAY_ASSIGN_OR_RETURN(const auto handle, GetRunnableModel(model));
  INLAY_ASSIGN_OR_RETURN(const ModelRunner::Restored restored,
                         handle->loaded.runner->Restore(data));
  *session =
      AddSession(handle->engine, handle->loaded.runner, restored.session);
  if (info == nullptr) return absl::OkStatus();
  inlay_restore_info result;
  inlay_restore_info_init(&result);
  result.num_tokens = restored.num_tokens;
  result.num_restored = restored.num_kv_tokens;
  CopyText(restored.note, result.note);
  WriteResult(result, info);
  return absl::OkStatus();
}

absl::Status CheckRestoreInfo(const inlay_restore_info* info) {
  return info == nullptr ? absl::OkStatus()
                         : CheckResult(info, "inlay_restore_info");
}

}  // namespace
}  // namespace inlay::api

using namespace inlay::api;  // NOLINT: the shim's own names

inlay_status inlay_session_save(inlay_session* session, const char* path,
                                inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const auto handle,
                           GetHandle<SessionHandle>(session));
    INLAY_RETURN_IF_ERROR(CheckPointer(path, "path"));
    INLAY_ASSIGN_OR_RETURN(auto file, inlay::DurableFile::Create(
                                          path, inlay::FileReaders::kOwner));
    INLAY_RETURN_IF_ERROR(handle->runner->Save(
        handle->id,
        [&](absl::Span<const std::byte> bytes) { return file.Append(bytes); }));
    return file.Commit();
  });
}

inlay_status inlay_session_save_buffer(inlay_session* session,
                                       inlay_buffer** buffer,
                                       inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(buffer, "buffer"));
    *buffer = nullptr;
    INLAY_ASSIGN_OR_RETURN(const auto handle,
                           GetHandle<SessionHandle>(session));
    BufferHandle result;
    INLAY_RETURN_IF_ERROR(handle->runner->Save(
        handle->id, [&](absl::Span<const std::byte> bytes) {
          result.bytes.append(reinterpret_cast<const char*>(bytes.data()),
                              bytes.size());
          return absl::OkStatus();
        }));
    *buffer = AddHandle(std::move(result));
    return absl::OkStatus();
  });
}

void inlay_restore_info_init(inlay_restore_info* info) {
  if (info != nullptr) InitStruct(info);
}

inlay_status inlay_session_restore(inlay_model* model, const char* path,
                                   inlay_session** session,
                                   inlay_restore_info* info,
                                   inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(session, "session"));
    *session = nullptr;
    INLAY_RETURN_IF_ERROR(GetRunnableModel(model).status());
    INLAY_RETURN_IF_ERROR(CheckPointer(path, "path"));
    INLAY_RETURN_IF_ERROR(CheckRestoreInfo(info));
    INLAY_ASSIGN_OR_RETURN(const std::string data,
                           inlay::ReadWholeFile(path, kMostSnapshotBytes));
    return RestoreInto(
        model, {reinterpret_cast<const std::byte*>(data.data()), data.size()},
        session, info);
  });
}

inlay_status inlay_session_restore_buffer(inlay_model* model, const void* data,
                                          size_t bytes, inlay_session** session,
                                          inlay_restore_info* info,
                                          inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(session, "session"));
    *session = nullptr;
    INLAY_RETURN_IF_ERROR(CheckInput(data, bytes, "data"));
    INLAY_RETURN_IF_ERROR(CheckRestoreInfo(info));
    return RestoreInto(model, {static_cast<const std::byte*>(data), bytes},
                       session, info);
  });
}
