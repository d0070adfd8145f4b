// ReplayReport: what serving a recording again showed (ModelRunner::Replay).
// Plain data.
//
// A replay makes a runner as the recorded one was, gives it every input where
// it came in, plans each step at the recorded time, and compares plans and
// sampled tokens. Where a token differs, the recorded one is taken into the
// session: so one difference in numbers (another machine, another kernel) hides
// none that follow, and makes none. Where a plan differs, or an input is
// refused, nothing after it would mean anything: the replay ends there.
#ifndef INLAY_CORE_ENGINE_REPLAY_H_
#define INLAY_CORE_ENGINE_REPLAY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sched/request.h"

namespace inlay {

struct ReplayReport {
  uint64_t entries = 0;   // of the recording, taken
  uint64_t steps = 0;     // that computed something
  uint64_t requests = 0;  // submitted
  uint64_t tokens = 0;    // sampled, and compared
  uint64_t tokens_differing = 0;

  struct Difference {
    uint64_t step = 0;      // the how manieth; 0: before the first
    RequestId request = 0;  // as recorded; 0: none in particular
    std::string what;       // a sentence for people
  };
  std::optional<Difference> first_difference;
  bool stopped = false;  // at a difference that nothing can follow

  // Why there was not more to replay; empty: the recording is whole.
  std::string damage;

  // What this replay sampled, by request as recorded.
  std::map<RequestId, std::vector<int32_t>> tokens_of;

  bool same() const { return !first_difference.has_value(); }
};

// One JSON object: same, entries, steps, requests, tokens, tokens_differing,
// first_difference (null, or step, request, what), stopped, damage, tokens_of
// (an object: request -> list).
std::string ToJson(const ReplayReport& report);

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_REPLAY_H_
