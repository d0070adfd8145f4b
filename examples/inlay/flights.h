// Many requests at once on one engine, each in a session of its own.
#ifndef INLAY_EXAMPLES_INLAY_FLIGHTS_H_
#define INLAY_EXAMPLES_INLAY_FLIGHTS_H_

#include <cstddef>
#include <functional>
#include <vector>

#include "examples/inlay/common.h"

namespace inlay::cli {

class Flights {
 public:
  // `host` must outlive this. At most `capacity` requests at once.
  Flights(Host& host, size_t capacity);

  bool full() const { return active_ == slots_.size(); }
  size_t active() const { return active_; }
  // `tag` comes back with the request's events. Not when full().
  Outcome Start(size_t tag, inlay_request_options options);
  // One step, then every event there is; a finished request's session goes.
  // Failed requests come as FINISHED events and fail nothing here.
  Outcome Step(
      const std::function<Outcome(size_t, const inlay_event_info&)>& take);

 private:
  struct Slot {
    Running running;
    size_t tag = 0;
  };

  Host& host_;
  std::vector<Slot> slots_;
  std::vector<Slot*> free_;
  size_t active_ = 0;
};

}  // namespace inlay::cli

#endif  // INLAY_EXAMPLES_INLAY_FLIGHTS_H_
