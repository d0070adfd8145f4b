// Stream, StreamEvent: the order of work on a device, and points in it to wait
// for.
#ifndef INLAY_MEMORY_DEVICE_STREAM_H_
#define INLAY_MEMORY_DEVICE_STREAM_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace inlay {

class ThreadPool;

// A point in a stream. Of the device whose streams record it, which must
// outlive it. Thread-compatible.
class StreamEvent {
 public:
  virtual ~StreamEvent() = default;
  // Waits until the stream has passed where this was recorded last; at once
  // when it never was. The first error of the work before it.
  virtual absl::Status Synchronize() { return absl::OkStatus(); }
};

// Work that was recorded on a stream, to be queued again as one piece. Keeps
// every address that was in it. Of a device, which must outlive it.
class Graph {
 public:
  virtual ~Graph() = default;
};

// An ordered queue of work on a device. The CPU's runs work at once, on its
// pool, in the calling thread's time. Thread-compatible.
class Stream {
 public:
  virtual ~Stream() = default;
  // Waits for everything queued; returns the first error of it.
  virtual absl::Status Synchronize() = 0;
  // `event` stands for what is queued so far, and no longer for anything
  // before.
  virtual absl::Status Record(StreamEvent&) { return absl::OkStatus(); }
  // What is queued from now on waits for `event`.
  virtual absl::Status Wait(StreamEvent&) { return absl::OkStatus(); }
  // Between the two, what this thread queues is recorded and does not run. An
  // error of EndGraph() leaves the stream as it was before. UNIMPLEMENTED where
  // there is no such thing.
  virtual absl::Status BeginGraph() {
    return absl::UnimplementedError("this device has no graphs");
  }
  virtual absl::StatusOr<std::unique_ptr<Graph>> EndGraph() {
    return absl::UnimplementedError("this device has no graphs");
  }
  // Queues what was recorded.
  virtual absl::Status Launch(Graph&) {
    return absl::UnimplementedError("this device has no graphs");
  }
  // The pool CPU kernels run on; null on other devices.
  virtual ThreadPool* thread_pool() { return nullptr; }
};

}  // namespace inlay

#endif  // INLAY_MEMORY_DEVICE_STREAM_H_
