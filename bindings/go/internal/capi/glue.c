#include "glue.h"

#include <string.h>

#include "_cgo_export.h"

void inlay_go_release(inlay_go_batch* batch) {
  for (int32_t i = 0; i < batch->count; ++i)
    inlay_event_release(batch->events[i]);
  batch->count = 0;
}

void inlay_go_take(uintptr_t engine, inlay_go_batch* batch) {
  inlay_go_release(batch);
  while (batch->count < INLAY_GO_BATCH) {
    const int32_t i = batch->count;
    batch->status =
        inlay_event_next((inlay_engine*)engine, 0, &batch->events[i], NULL);
    if (batch->status != INLAY_OK) return;
    inlay_event_info_init(&batch->infos[i]);
    inlay_event_get_info(batch->events[i], &batch->infos[i], NULL);
    batch->ids[i] = (uint64_t)(uintptr_t)batch->infos[i].user_data;
    ++batch->count;
  }
}

inlay_status inlay_go_step(uintptr_t engine, uint64_t budget_us,
                           inlay_step_info* info, uintptr_t* error) {
  inlay_error* object;
  inlay_step_info_init(info);
  const inlay_status status =
      inlay_engine_step((inlay_engine*)engine, budget_us, info, &object);
  *error = (uintptr_t)object;
  return status;
}

void inlay_go_copy_buffer(uintptr_t buffer, void* to, size_t bytes) {
  memcpy(to, inlay_buffer_data((const inlay_buffer*)buffer), bytes);
}

static void Log(void* user, int32_t level, const char* message) {
  inlayGoLog((uintptr_t)user, level, (char*)message);
}

static int32_t Progress(void* user, int32_t stage, float fraction) {
  return inlayGoProgress((uintptr_t)user, stage, fraction);
}

uintptr_t inlay_go_log(void) { return (uintptr_t)&Log; }
uintptr_t inlay_go_progress(void) { return (uintptr_t)&Progress; }
