// Makes the host's memory run out on demand: in this test program, operator new
// is ours (failing_new_test.cc).
#ifndef INLAY_TESTS_CORE_ENGINE_OOM_FAILING_NEW_H_
#define INLAY_TESTS_CORE_ENGINE_OOM_FAILING_NEW_H_

#include <atomic>
#include <cstdint>

namespace inlay {

// Allocations are counted, and fail, only while an Armed lives; those of every
// thread. Thread-safe.
class FailingNew {
 public:
  class Armed {
   public:
    Armed() { armed_ = true; }
    ~Armed() { armed_ = false; }
    Armed(const Armed&) = delete;
    Armed& operator=(const Armed&) = delete;
  };

  // The `first`-th from now (1: the next) and all up to `count` of them fail.
  static void Plan(int64_t first, int64_t count) {
    seen_ = 0;
    failed_ = 0;
    end_ = count > INT64_MAX - first ? INT64_MAX : first + count;
    first_ = first;
  }
  // None fails.
  static void PlanNone() { Plan(INT64_MAX, 0); }

  // Since the last Plan().
  static int64_t seen() { return seen_; }
  static int64_t failed() { return failed_; }
  // Of the whole program, armed or not.
  static int64_t live_bytes() { return live_bytes_; }
  // The most that lived at once since StartPeak(), beyond what did then.
  static void StartPeak() { peak_bytes_ = start_bytes_ = live_bytes_.load(); }
  static int64_t peak_bytes() { return peak_bytes_ - start_bytes_; }

  // The operators': whether this allocation fails.
  static bool Fails() {
    if (!armed_.load(std::memory_order_relaxed)) return false;
    const int64_t number = ++seen_;
    if (number < first_ || number >= end_) return false;
    ++failed_;
    return true;
  }
  static void AddLive(int64_t bytes) {
    const int64_t live = live_bytes_ += bytes;
    int64_t peak = peak_bytes_;
    while (live > peak && !peak_bytes_.compare_exchange_weak(peak, live)) {
    }
  }

 private:
  static inline std::atomic<bool> armed_{false};
  static inline std::atomic<int64_t> first_{INT64_MAX};
  static inline std::atomic<int64_t> end_{INT64_MAX};
  static inline std::atomic<int64_t> seen_{0};
  static inline std::atomic<int64_t> failed_{0};
  static inline std::atomic<int64_t> live_bytes_{0};
  static inline std::atomic<int64_t> peak_bytes_{0};
  static inline std::atomic<int64_t> start_bytes_{0};
};

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_ENGINE_OOM_FAILING_NEW_H_
