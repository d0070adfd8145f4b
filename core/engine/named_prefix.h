// NamedPrefix: tokens that many sessions begin with, kept computed for them.
// Plain data, owned by ModelRunner, guarded by its mutex.
#ifndef INLAY_CORE_ENGINE_NAMED_PREFIX_H_
#define INLAY_CORE_ENGINE_NAMED_PREFIX_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/kv_cache.h"
#include "sched/request.h"

namespace inlay {

using PrefixId = uint64_t;

struct NamedPrefix {
  NamedPrefix(PrefixId its_id, std::string its_name, KvSequence sequence)
      : id(its_id), name(std::move(its_name)), held(std::move(sequence)) {}

  PrefixId id;
  std::string name;
  std::vector<int32_t> tokens;
  uint64_t isolation = 0;     // of the sessions opened from it
  bool is_long = false;       // as Session has it
  int holders = 1;            // handles of the host
  uint64_t budget_bytes = 0;  // of KV that it may pin; 0: all
  bool pinned = false;
  KvSequence held;        // while pinned and computed: cannot be evicted
  SessionId warming = 0;  // the session that computes it; 0: none

  // As Session has it.
  uint64_t salt() const { return 2 * isolation + (is_long ? 1 : 0); }
};

struct PrefixInfo {
  uint64_t num_tokens = 0;
  uint64_t num_cached = 0;
  uint64_t kv_bytes = 0;  // of all its tokens
  bool pinned = false;
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_NAMED_PREFIX_H_
