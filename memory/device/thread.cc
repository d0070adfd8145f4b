#include "memory/device/thread.h"

#include <signal.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Threads started in its scope inherit a full mask, but for what a thread
// raises itself: blocked, a fault of a host's callback would end the process
// past the host's handlers.
class ScopedBlockSignals {
 public:
  ScopedBlockSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) {
      sigdelset(&all, own);
    }
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

class Attributes {
 public:
  Attributes() {
    if (pthread_attr_init(&attributes_) != 0) return;
    valid_ = true;
    size_t bytes = 0;
    pthread_attr_getstacksize(&attributes_, &bytes);
    pthread_attr_setstacksize(&attributes_,
                              std::max(bytes, Thread::kStackBytes));
  }
  ~Attributes() {
    if (valid_) pthread_attr_destroy(&attributes_);
  }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;

  const pthread_attr_t* get() const { return valid_ ? &attributes_ : nullptr; }

 private:
  pthread_attr_t attributes_;
  bool valid_ = false;
};

using Main = std::function<void()>;

void* Run(void* owned) {
  const std::unique_ptr<Main> main(static_cast<Main*>(owned));
  (*main)();
  return nullptr;
}

}  // namespace

absl::StatusOr<Thread> Thread::Start(std::function<void()> main) {
  auto owned = std::make_unique<Main>(std::move(main));
  const ScopedBlockSignals block_signals;
  const Attributes attributes;
  Thread thread;
  const int error =
      pthread_create(&thread.thread_, attributes.get(), Run, owned.get());
  if (error != 0) {
    return absl::ResourceExhaustedError(FormattedString(
        "the system refused a thread: %s", std::strerror(error)));
  }
  static_cast<void>(owned.release());  // it is the thread's
  thread.joinable_ = true;
  return thread;
}

Thread::Thread(Thread&& other) noexcept
    : thread_(other.thread_),
      joinable_(std::exchange(other.joinable_, false)) {}

Thread& Thread::operator=(Thread&& other) noexcept {
  std::swap(thread_, other.thread_);
  std::swap(joinable_, other.joinable_);
  return *this;
}

Thread::~Thread() { INLAY_DCHECK(!joinable_); }

void Thread::Join() {
  pthread_join(thread_, nullptr);
  joinable_ = false;
}

}  // namespace inlay
