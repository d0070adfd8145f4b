// ScopedBlockSignals: threads started inside its scope get none of the
// process's signals.
#ifndef INLAY_MEMORY_DEVICE_BLOCK_SIGNALS_H_
#define INLAY_MEMORY_DEVICE_BLOCK_SIGNALS_H_

#include <pthread.h>
#include <signal.h>

namespace inlay {

// The host's signals are for the host's threads: ours inherit a full mask.
class ScopedBlockSignals {
 public:
  ScopedBlockSignals() {
    sigset_t all;
    sigfillset(&all);
    active_ = pthread_sigmask(SIG_SETMASK, &all, &saved_) == 0;
  }
  ~ScopedBlockSignals() {
    if (active_) pthread_sigmask(SIG_SETMASK, &saved_, nullptr);
  }
  ScopedBlockSignals(const ScopedBlockSignals&) = delete;
  ScopedBlockSignals& operator=(const ScopedBlockSignals&) = delete;

 private:
  sigset_t saved_;
  bool active_ = false;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_DEVICE_BLOCK_SIGNALS_H_
