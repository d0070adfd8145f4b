// The C ABI of recordings.
#include <utility>

#include "api/src/shim.h"

using namespace inlay::api;  // NOLINT: the shim's own names

inlay_status inlay_model_record_start(inlay_model* model, const char* path,
                                      inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetRunnableModel(model));
    INLAY_RETURN_IF_ERROR(CheckPointer(path, "path"));
    return handle->loaded.runner->StartRecording(path);
  });
}

inlay_status inlay_model_record_stop(inlay_model* model, inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetRunnableModel(model));
    return handle->loaded.runner->StopRecording();
  });
}

inlay_status inlay_model_replay(inlay_model* model, const char* path,
                                inlay_buffer** report, inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(report, "report"));
    *report = nullptr;
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetRunnableModel(model));
    INLAY_RETURN_IF_ERROR(CheckPointer(path, "path"));
    INLAY_ASSIGN_OR_RETURN(
        const inlay::ReplayReport result,
        handle->engine->Replay(*handle->loaded.runner, path));
    *report = AddHandle(BufferHandle{ToJson(result)});
    return absl::OkStatus();
  });
}
