// Session and Request: what the engine knows of a token log and of one
// generation in it. Owned by ModelRunner, guarded by its mutex.
#ifndef INLAY_CORE_ENGINE_REQUEST_H_
#define INLAY_CORE_ENGINE_REQUEST_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/engine/clock.h"
#include "core/engine/event.h"
#include "core/engine/kv_cache.h"
#include "core/engine/named_prefix.h"
#include "core/engine/output.h"
#include "core/engine/pooler.h"
#include "core/engine/request_options.h"
#include "core/sampling/sampler.h"

namespace inlay {

// Where a session's generation stands, for a request that goes on from there.
struct SamplerMark {
  uint64_t seed = 0;
  uint64_t num_draws = 0;
  int64_t generated_begin = 0;  // log positions from here on were generated

  // The log has no more than so many tokens now: what comes next is generated.
  void CutTo(size_t num_tokens) {
    generated_begin =
        std::min(generated_begin, static_cast<int64_t>(num_tokens));
  }
};

struct Session {
  Session(SessionId session_id, KvSequence sequence)
      : id(session_id), kv(sequence.Empty()), hold(std::move(sequence)) {}

  // Sequences of different salts share no KV.
  uint64_t SaltFor(bool long_rope) const {
    return 2 * isolation + (long_rope ? 1 : 0);
  }
  uint64_t salt() const { return SaltFor(is_long); }

  SessionId id;
  std::vector<int32_t> log;
  KvSequence kv;  // of log[0, kv.tables.num_tokens()) while a request runs
  // Blocks set aside for its next request, until that begins (quote.cc), or of
  // a session being restored (save_restore.cc).
  KvSequence hold;
  RequestId active = 0;    // the running request; 0: none
  uint64_t isolation = 0;  // 0: shares KV with all that have 0 too
  SamplerMark mark;
  // Its last request could pass ModelInfo::rope_threshold: its KV is rotated
  // so.
  bool is_long = false;
  PrefixId warms = 0;      // the prefix that it computes; 0: it is the host's
  bool released = false;   // goes when its request has ended
  bool restoring = false;  // KV is still written to `hold`
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
  // Without its input, which is in the log, but for the tokens' types.
  RequestOptions options;
  Sampler sampler;
  OutputAssembler output;
  Pooler pooler;
  FinishInfo finish;

  int64_t prompt_begin = 0;  // log positions of this request's own input
  int64_t prompt_end = 0;
  int64_t max_new_tokens = 0;
  // Positions below it had their logits and scores delivered: recomputation
  // after a preemption does not repeat them.
  int64_t delivered_end = 0;
  // The first position whose logits were asked for: it must be computed, cached
  // or not.
  int64_t first_wanted = 0;
  bool started = false;
  bool in_flight = false;  // in the step being computed: Commit() ends it
  bool cancelled = false;
  bool preempted = false;     // and not in a plan again yet
  bool looked_again = false;  // for KV from a tier, since it was admitted
  SteadyTime submitted;
  SteadyTime last_token;  // when it came

  int32_t token_type(int64_t position) const {
    if (options.token_types.empty() || position < prompt_begin) return 0;
    return options.token_types[static_cast<size_t>(position - prompt_begin)];
  }

  // Tokens whose KV may come from the cache.
  int64_t reusable() const {
    return std::min(static_cast<int64_t>(session->log.size()) - 1,
                    std::max(first_wanted, delivered_end));
  }
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_REQUEST_H_
