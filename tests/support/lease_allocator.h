// A HostAllocator that knows what may be in use: engine tests of memory leases
// and of allocations that fail.
#ifndef INLAY_TESTS_SUPPORT_LEASE_ALLOCATOR_H_
#define INLAY_TESTS_SUPPORT_LEASE_ALLOCATOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "memory/device/device.h"

namespace inlay::testing {

// Thread-safe. Must outlive the engine.
class LeaseAllocator {
 public:
  HostAllocator hooks() { return {&Allocate, &Deallocate, this}; }

  // From now on, more than this in use is a violation; 0: no limit.
  void Allow(uint64_t bytes) { allowed_ = bytes; }
  // Allocations fail from the `first`-th on (1: the next), `count` of them.
  void FailFrom(int64_t first, int64_t count) {
    fail_first_ = num_allocations_ + first;
    fail_end_ = fail_first_ + count;
  }

  uint64_t live() const { return live_; }
  int64_t num_live() const { return num_live_; }
  int64_t num_allocations() const { return num_allocations_; }
  int64_t num_violations() const { return num_violations_; }
  int64_t num_failed() const { return num_failed_; }

 private:
  static void* Allocate(void* user, size_t bytes, size_t alignment) {
    auto& self = *static_cast<LeaseAllocator*>(user);
    const int64_t number = ++self.num_allocations_;
    if (number >= self.fail_first_ && number < self.fail_end_) {
      ++self.num_failed_;
      return nullptr;
    }
    const uint64_t live = self.live_ += bytes;
    const uint64_t allowed = self.allowed_;
    if (allowed != 0 && live > allowed) ++self.num_violations_;
    ++self.num_live_;
    return std::aligned_alloc(alignment,
                              (bytes + alignment - 1) / alignment * alignment);
  }
  static void Deallocate(void* user, void* ptr, size_t bytes, size_t) {
    auto& self = *static_cast<LeaseAllocator*>(user);
    self.live_ -= bytes;
    --self.num_live_;
    std::free(ptr);
  }

  std::atomic<uint64_t> live_{0};
  std::atomic<uint64_t> allowed_{0};
  std::atomic<int64_t> num_live_{0};
  std::atomic<int64_t> num_allocations_{0};
  std::atomic<int64_t> num_violations_{0};
  std::atomic<int64_t> num_failed_{0};
  std::atomic<int64_t> fail_first_{0};
  std::atomic<int64_t> fail_end_{0};
};

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_LEASE_ALLOCATOR_H_
