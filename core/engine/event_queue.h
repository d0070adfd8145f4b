// EventQueue: events of all requests in the order they came, taken by the host
// from any thread. Knows nothing of how they are made.
#ifndef INLAY_CORE_ENGINE_EVENT_QUEUE_H_
#define INLAY_CORE_ENGINE_EVENT_QUEUE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "core/engine/event.h"
#include "memory/mutex.h"

namespace inlay {

// Thread-safe. Memory is bounded by what requests may generate: consecutive
// token events of a request that nobody took yet are joined into one.
class EventQueue {
 public:
  EventQueue() = default;
  ~EventQueue();
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  // Events of a request are accepted between Open and Drop.
  void Open(RequestId request);
  void Push(Event event);
  // Forgets the request and its events that were not taken.
  void Drop(RequestId request);

  // `timeout_us` UINT64_MAX waits without limit.
  // The oldest event of any request. DEADLINE_EXCEEDED when none comes in time,
  // UNAVAILABLE once closed and empty.
  absl::StatusOr<Event> Next(uint64_t timeout_us);
  // The oldest of one request; OUT_OF_RANGE after its kFinished was taken,
  // INVALID_HANDLE when it is not open.
  absl::StatusOr<Event> NextOf(RequestId request, uint64_t timeout_us);

  // Wakes all waiters; what is queued can still be taken.
  void Close();

  // A descriptor readable while an event waits, and once closed; created on
  // first use, owned here. RESOURCE_EXHAUSTED when the system gives none.
  absl::StatusOr<int> Descriptor();

 private:
  using List = std::list<Event>;
  struct Stream {
    std::list<List::iterator> pending;
    // Places for the last event, made at Open: it always arrives, even when
    // memory has run out.
    List last_event = List(1);
    std::list<List::iterator> last_pending = std::list<List::iterator>(1);
    bool finished_taken = false;
    // Its own, so that an event wakes only who waits for this request.
    std::shared_ptr<CondVar> arrived = std::make_shared<CondVar>();
  };

  Event Take(List::iterator it) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UpdateDescriptor() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  CondVar arrived_;
  List events_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<RequestId, Stream> streams_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  int descriptor_ ABSL_GUARDED_BY(mu_) = -1;
  bool signalled_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_EVENT_QUEUE_H_
