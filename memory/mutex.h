// Mutex, MutexLock, CondVar: the standard library's, with the annotations that
// clang's -Wthread-safety checks. (absl::Mutex of a distribution's abseil is
// invisible to ThreadSanitizer, which then reports races that are none.)
#ifndef INLAY_MEMORY_MUTEX_H_
#define INLAY_MEMORY_MUTEX_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "absl/base/thread_annotations.h"

namespace inlay {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    if (mu_.try_lock()) return;
    ++waiting_;
    mu_.lock();
    --waiting_;
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    return mu_.try_lock();
  }
  // Between the pieces of long work that holds it: lets go, and takes it again
  // when one of those who waited has had it. Unlocking alone is not enough: who
  // waits has yet to wake up, and would find it locked again, time after time.
  void LetOthersIn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    const int waiting = waiting_;
    if (waiting == 0) return;
    mu_.unlock();
    // Threads that the system does not run are not waited for.
    constexpr int kMostYields = 1000;
    for (int i = 0; i < kMostYields && waiting_ >= waiting; ++i)
      std::this_thread::yield();
    Lock();  // so that another's LetOthersIn() sees it wait
  }

 private:
  friend class CondVar;
  std::mutex mu_;
  std::atomic<int> waiting_{0};  // in Lock()
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) : mu_(mu) {
    mu_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mu_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mu_;
};

class CondVar {
 public:
  // Both release `mu`, wait, and hold it again on return; they may wake without
  // a signal.
  void Wait(Mutex* mu) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // True when the deadline passed.
  bool WaitUntil(Mutex* mu, std::chrono::steady_clock::time_point deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    const bool late =
        condition_.wait_until(lock, deadline) == std::cv_status::timeout;
    lock.release();
    return late;
  }
  void SignalAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_MUTEX_H_
