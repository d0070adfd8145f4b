// A TraceLog as Perfetto reads it (api/proto/trace.proto). Knows no handles and
// no engine.
#ifndef INLAY_API_SRC_TRACE_PROTO_H_
#define INLAY_API_SRC_TRACE_PROTO_H_

#include <cstdint>
#include <string>

#include "core/engine/trace_event.h"

namespace inlay::api {

// Whose trace it is.
struct TraceProcess {
  int32_t pid = 1;             // > 0
  std::string name = "inlay";  // UTF-8
};

// A serialised perfetto.protos.Trace. Times are those of the steady clock.
// Tracks: a thread of steps for each model, with the phases of each step; below
// "requests" one for each request, in which it is queued, in prefill, decode or
// preempted; evictions; counters of requests, KV blocks and memory. On each
// track times do not decrease and every slice ends: what had not ended ends
// with the log. A request whose beginning is not in the log begins with the
// first that is known of it. Up to 700 bytes an event. May throw
// std::bad_alloc.
std::string TraceProto(const TraceLog& log, const TraceProcess& process);

}  // namespace inlay::api

#endif  // INLAY_API_SRC_TRACE_PROTO_H_
