/* The C side of events.go, callbacks.go and memory.go. Handles are numbers
 * here, as they are in Go. */
#ifndef INLAY_GO_GLUE_H_
#define INLAY_GO_GLUE_H_

#include <inlay/inlay.h>

enum { INLAY_GO_BATCH = 64 };

/* Events taken together. ids[i] is infos[i].user_data as the number that Go
 * gave. */
typedef struct inlay_go_batch {
  inlay_event* events[INLAY_GO_BATCH];
  inlay_event_info infos[INLAY_GO_BATCH];
  uint64_t ids[INLAY_GO_BATCH];
  int32_t count;
  inlay_status status; /* why there are no more */
} inlay_go_batch;

/* Releases the batch's events, and takes those that wait, without waiting. */
void inlay_go_take(uintptr_t engine, inlay_go_batch* batch);
void inlay_go_release(inlay_go_batch* batch);

inlay_status inlay_go_step(uintptr_t engine, uint64_t budget_us,
                           inlay_step_info* info, uintptr_t* error);

void inlay_go_copy_buffer(uintptr_t buffer, void* to, size_t bytes);

/* Addresses of an inlay_log_callback and an inlay_progress_callback that find
 * their Go function by `user`. */
uintptr_t inlay_go_log(void);
uintptr_t inlay_go_progress(void);

#endif
