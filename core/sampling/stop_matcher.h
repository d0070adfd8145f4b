// Finds stop strings in text that arrives in pieces, and says which of the text
// may be shown. Must not know tokens. Source: the prefix function of Knuth,
// Morris and Pratt ("Fast pattern matching in strings", 1977), one automaton a
// stop string.
#ifndef INLAY_CORE_SAMPLING_STOP_MATCHER_H_
#define INLAY_CORE_SAMPLING_STOP_MATCHER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace inlay {

inline constexpr size_t kMaxStops = 64;
inline constexpr size_t kMaxStopBytes = 1024;

struct StopResult {
  std::string text;         // safe to emit now
  int32_t stop_index = -1;  // the stop string that matched, -1 = none yet
};

// One a request; movable; not thread-safe. The match is the stop string that
// is complete first, of several complete at the same byte the longest (then the
// first given): where the text is cut into pieces changes nothing, and no
// match waits for more text. Time: bytes x number of stops.
class StopMatcher {
 public:
  // INVALID_ARGUMENT: more than kMaxStops stops, or one that is not of 1 to
  // kMaxStopBytes bytes. No stops is fine: text passes through.
  static absl::StatusOr<StopMatcher> Create(std::vector<std::string> stops);

  // Any bytes. Text before a match is emitted; the stop string, what follows it
  // and every later push are not. Of text without a match, the longest suffix
  // that begins a stop string is held back; where text and stops are whole
  // UTF-8 characters, what is emitted is, too.
  StopResult Push(std::string_view text);

  // The text still held back; empty after a match.
  std::string Finish();

  // As new, with the same stops.
  void Reset();

 private:
  struct Stop {
    std::string text;
    // border[n]: the longest proper prefix of the first n bytes that is also
    // their suffix.
    std::vector<int32_t> border;
    int32_t matched = 0;  // bytes of `text` that end the input so far
  };

  StopMatcher() = default;
  // The stop that `byte` completes, or -1.
  int32_t Advance(char byte);

  std::vector<Stop> stops_;
  std::string held_;  // at most kMaxStopBytes - 1 between pushes
  int32_t stop_index_ = -1;
};

}  // namespace inlay

#endif  // INLAY_CORE_SAMPLING_STOP_MATCHER_H_
