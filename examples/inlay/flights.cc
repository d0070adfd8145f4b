#include "examples/inlay/flights.h"

namespace inlay::cli {

Flights::Flights(Host& host, size_t capacity) : host_(host), slots_(capacity) {
  for (Slot& slot : slots_) free_.push_back(&slot);
}

Outcome Flights::Start(size_t tag, inlay_request_options options) {
  Slot* slot = free_.back();
  options.user_data = slot;
  slot->tag = tag;
  CLI_RETURN_IF_FAILED(cli::Start(host_, options, &slot->running));
  free_.pop_back();
  ++active_;
  return Outcome();
}

Outcome Flights::Step(
    const std::function<Outcome(size_t, const inlay_event_info&)>& take) {
  const Result<inlay_step_info> step = host_.engine->Step();
  if (!step.ok()) return step.error();
  while (true) {
    Result<Event> event = host_.engine->Next(0);
    if (!event.ok()) {
      if (event.error().status() == INLAY_TIMEOUT) return Outcome();
      return event.error();
    }
    Slot* slot = static_cast<Slot*>(event->info().user_data);
    CLI_RETURN_IF_FAILED(take(slot->tag, event->info()));
    if (!event->finished()) continue;
    slot->running = Running();
    free_.push_back(slot);
    --active_;
  }
}

}  // namespace inlay::cli
