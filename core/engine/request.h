// Session and Request: what the engine knows of a token log and of one
// generation in it. Owned by ModelRunner, guarded by its mutex.
#ifndef INLAY_CORE_ENGINE_REQUEST_H_
#define INLAY_CORE_ENGINE_REQUEST_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "core/engine/clock.h"
#include "core/engine/event.h"
#include "core/engine/output.h"
#include "core/engine/request_options.h"
#include "core/sampling/sampler.h"
#include "memory/kv/block_table.h"

namespace inlay {

struct Session {
  Session(SessionId session_id, KvBlockTable kv)
      : id(session_id), table(std::move(kv)) {}

  SessionId id;
  std::vector<int32_t> log;
  KvBlockTable table;    // KV of log[0, table.num_tokens())
  RequestId active = 0;  // the running request; 0: none
  // Its last request could pass ModelInfo::rope_threshold: its KV is rotated
  // so.
  bool is_long = false;
  bool released = false;  // goes when its request has ended
};

struct Request {
  Request(RequestId request_id, Session* owner, RequestOptions&& asked,
          Sampler&& chooser, OutputAssembler&& assembler)
      : id(request_id),
        session(owner),
        options(std::move(asked)),
        sampler(std::move(chooser)),
        output(std::move(assembler)) {}

  RequestId id;
  Session* session;
  RequestOptions options;  // without its input, which is in the log
  Sampler sampler;
  OutputAssembler output;
  FinishInfo finish;

  int64_t prompt_begin = 0;  // log positions of this request's own input
  int64_t prompt_end = 0;
  int64_t max_new_tokens = 0;
  // Positions below it had their logits and scores delivered: recomputation
  // after a preemption does not repeat them.
  int64_t delivered_end = 0;
  bool started = false;
  bool in_flight = false;  // in the step being computed: Commit() ends it
  bool cancelled = false;
  SteadyTime submitted;
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_REQUEST_H_
