#include "core/engine/event_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// For `more` elements. Twice as much where it is not there: reserve() of just
// so much would copy all that waits with every token that joins it.
template <typename Container>
void MakeRoom(size_t more, Container& container) {
  const size_t needed = container.size() + more;
  if (needed > container.capacity())
    container.reserve(std::max(needed, 2 * container.capacity()));
}

// Joins `next` to `event` when both are token events of one request: a slow
// reader then finds one event, not thousands.
bool TryJoin(Event& event, Event& next) {
  if (event.kind != EventKind::kTokens || next.kind != EventKind::kTokens)
    return false;
  // All of it or, should memory run out, nothing.
  MakeRoom(next.tokens.size(), event.tokens);
  MakeRoom(next.text.size(), event.text);
  MakeRoom(next.bytes.size(), event.bytes);
  MakeRoom(next.logprobs.size(), event.logprobs);
  event.tokens.insert(event.tokens.end(), next.tokens.begin(),
                      next.tokens.end());
  event.text += next.text;
  event.bytes += next.bytes;
  event.logprobs.insert(event.logprobs.end(), next.logprobs.begin(),
                        next.logprobs.end());
  return true;
}

std::chrono::steady_clock::time_point Deadline(uint64_t timeout_us) {
  // A century stands for no limit: the sum stays within the clock's range.
  constexpr uint64_t kLongest = uint64_t{100 * 365 * 86400ull} * 1000000;
  return std::chrono::steady_clock::now() +
         std::chrono::microseconds(std::min(timeout_us, kLongest));
}

}  // namespace

EventQueue::~EventQueue() {
  MutexLock lock(&mu_);
  if (descriptor_ >= 0) close(descriptor_);
}

void EventQueue::Open(RequestId request) {
  MutexLock lock(&mu_);
  streams_.try_emplace(request);
}

void EventQueue::Push(Event event) {
  MutexLock lock(&mu_);
  const auto it = streams_.find(event.request);
  if (it == streams_.end()) return;
  auto& pending = it->second.pending;
  if (!pending.empty() && TryJoin(*pending.back(), event)) return;
  // In the two queues at once or, should memory run out, in neither.
  List one;
  std::list<List::iterator> one_pending;
  if (event.kind == EventKind::kFinished && !it->second.last_event.empty()) {
    one.splice(one.end(), it->second.last_event);
    one_pending.splice(one_pending.end(), it->second.last_pending);
  } else {
    one.emplace_back();
    one_pending.emplace_back();
  }
  one.front() = std::move(event);
  one_pending.front() = one.begin();
  events_.splice(events_.end(), one);
  pending.splice(pending.end(), one_pending);
  UpdateDescriptor();
  it->second.arrived->SignalAll();
  arrived_.SignalAll();
}

void EventQueue::Drop(RequestId request) {
  // A gigabyte of logits goes when others need not wait for it any more.
  List dropped;
  decltype(streams_)::node_type stream;
  MutexLock lock(&mu_);
  const auto it = streams_.find(request);
  if (it == streams_.end()) return;
  for (const List::iterator event : it->second.pending)
    dropped.splice(dropped.end(), events_, event);
  it->second.arrived->SignalAll();
  stream = streams_.extract(it);
  UpdateDescriptor();
}

Event EventQueue::Take(List::iterator it) {
  Event event = std::move(*it);
  Stream& stream = streams_.find(event.request)->second;
  // Both queues are in order of arrival, so it is its stream's oldest.
  stream.pending.pop_front();
  if (event.kind == EventKind::kFinished) stream.finished_taken = true;
  events_.erase(it);
  UpdateDescriptor();
  return event;
}

absl::StatusOr<Event> EventQueue::Next(uint64_t timeout_us) {
  const auto deadline = Deadline(timeout_us);
  MutexLock lock(&mu_);
  while (events_.empty()) {
    if (closed_) return absl::UnavailableError("the engine was released");
    // A wait whose time has passed would still put the thread to sleep.
    if (timeout_us == 0 ||
        (arrived_.WaitUntil(&mu_, deadline) && events_.empty())) {
      return absl::DeadlineExceededError("no event within the time asked");
    }
  }
  return Take(events_.begin());
}

absl::StatusOr<Event> EventQueue::NextOf(RequestId request,
                                         uint64_t timeout_us) {
  const auto deadline = Deadline(timeout_us);
  MutexLock lock(&mu_);
  bool timed_out = timeout_us == 0;
  while (true) {
    const auto it = streams_.find(request);
    if (it == streams_.end()) {
      return InvalidHandleError("the request was released");
    }
    if (!it->second.pending.empty()) return Take(it->second.pending.front());
    if (it->second.finished_taken) {
      return absl::OutOfRangeError("the request's last event was taken");
    }
    if (closed_) return absl::UnavailableError("the engine was released");
    if (timed_out) {
      return absl::DeadlineExceededError("no event within the time asked");
    }
    // A copy: Drop() may take the stream away while we wait.
    const std::shared_ptr<CondVar> arrived = it->second.arrived;
    timed_out = arrived->WaitUntil(&mu_, deadline);
  }
}

void EventQueue::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
  for (auto& [request, stream] : streams_) stream.arrived->SignalAll();
  arrived_.SignalAll();
  UpdateDescriptor();
}

absl::StatusOr<int> EventQueue::Descriptor() {
  MutexLock lock(&mu_);
  if (descriptor_ < 0) {
    descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (descriptor_ < 0) {
      return absl::ResourceExhaustedError(
          FormattedString("no event descriptor: %s", std::strerror(errno)));
    }
    UpdateDescriptor();
  }
  return descriptor_;
}

void EventQueue::UpdateDescriptor() {
  // Closed, it wakes whoever waits for it as it does other waiters.
  const bool readable = closed_ || !events_.empty();
  if (descriptor_ < 0 || signalled_ == readable) return;
  uint64_t count = 1;
  // Neither call can fail on a descriptor of our own: the counter is 0 or 1.
  if (readable) {
    signalled_ = write(descriptor_, &count, sizeof(count)) > 0;
  } else {
    signalled_ = read(descriptor_, &count, sizeof(count)) < 0;
  }
}

}  // namespace inlay
