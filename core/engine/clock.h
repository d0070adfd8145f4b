// The engine's clock: steady, so that a step of the system's time neither
// stretches a budget nor turns a duration negative.
#ifndef INLAY_CORE_ENGINE_CLOCK_H_
#define INLAY_CORE_ENGINE_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace inlay {

using SteadyTime = std::chrono::steady_clock::time_point;

inline SteadyTime Now() { return std::chrono::steady_clock::now(); }

// end >= begin.
inline uint64_t MicrosecondsBetween(SteadyTime begin, SteadyTime end) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(end - begin)
          .count());
}

// A point in time as the scheduler counts it.
inline int64_t ToMicroseconds(SteadyTime time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             time.time_since_epoch())
      .count();
}

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_CLOCK_H_
