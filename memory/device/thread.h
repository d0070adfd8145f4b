// Thread: a thread of the library's own. The process's signals never interrupt
// it (they are for the host's threads), but for faults of its own, and its
// stack has room for any kernel, whatever the process gives threads by default
// (ulimit -s, some C libraries).
#ifndef INLAY_MEMORY_DEVICE_THREAD_H_
#define INLAY_MEMORY_DEVICE_THREAD_H_

#include <pthread.h>

#include <cstddef>
#include <functional>

#include "absl/status/statusor.h"

namespace inlay {

// Movable. Whoever starts one joins it.
class Thread {
 public:
  // At least: kernels take up to 400 KB, with sanitizers several times that.
  static constexpr size_t kStackBytes = size_t{2} << 20;

  // RESOURCE_EXHAUSTED when the system refuses one, with its reason.
  static absl::StatusOr<Thread> Start(std::function<void()> main);

  Thread() = default;
  Thread(Thread&& other) noexcept;
  Thread& operator=(Thread&& other) noexcept;
  ~Thread();

  bool joinable() const { return joinable_; }
  void Join();

 private:
  pthread_t thread_ = {};
  bool joinable_ = false;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_DEVICE_THREAD_H_
