// The CPU as a device: host memory within a budget, and a pool of threads.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "memory/device/device.h"
#include "memory/device/thread_pool.h"
#include "memory/status.h"

namespace inlay {
namespace {

void* RuntimeAllocate(void*, size_t bytes, size_t alignment) {
  return ::operator new(bytes, std::align_val_t(alignment), std::nothrow);
}

void RuntimeDeallocate(void*, void* ptr, size_t, size_t alignment) {
  ::operator delete(ptr, std::align_val_t(alignment));
}

// The cores that this process may run on, which a container or taskset may have
// narrowed.
int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = 0;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cores = CPU_COUNT(&set);
  if (cores < 1) cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores, 1, ThreadPool::kMaxThreads);
}

// What the control group of a container allows, where there is one.
size_t ContainerMemoryBytes() {
  for (const char* path : {"/sys/fs/cgroup/memory.max",
                           "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    size_t bytes = 0;
    if (file >> bytes) return bytes;  // "max" is no number
  }
  return std::numeric_limits<size_t>::max();
}

size_t PhysicalMemoryBytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page_bytes <= 0) {
    return std::numeric_limits<ptrdiff_t>::max();
  }
  return std::min(static_cast<size_t>(pages) * static_cast<size_t>(page_bytes),
                  ContainerMemoryBytes());
}

class CpuStream final : public Stream {
 public:
  explicit CpuStream(ThreadPool* pool) : pool_(pool) {}
  absl::Status Synchronize() override { return absl::OkStatus(); }
  ThreadPool* thread_pool() override { return pool_; }

 private:
  ThreadPool* pool_;  // the device's
};

class CpuDevice final : public Device {
 public:
  CpuDevice(std::unique_ptr<ThreadPool> pool, size_t budget_bytes,
            const HostAllocator& allocator)
      : pool_(std::move(pool)), allocator_(allocator), budget_(budget_bytes) {
    info_.kind = DeviceKind::kCpu;
    info_.name = "cpu";
    info_.num_threads = pool_->num_threads();
    info_.memory_bytes = PhysicalMemoryBytes();
  }

  const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<Buffer> Allocate(size_t bytes,
                                  MemoryClass memory_class) override {
    if (bytes == 0) return Buffer();
    INLAY_RETURN_IF_ERROR(Charge(bytes));
    void* data = allocator_.allocate(allocator_.user, bytes, kAlignment);
    if (data == nullptr) {
      total_.fetch_sub(bytes);
      return OutOfMemoryError(
          absl::StrFormat("cpu: the allocator has no %d bytes", bytes));
    }
    if (reinterpret_cast<uintptr_t>(data) % kAlignment != 0) {
      allocator_.deallocate(allocator_.user, data, bytes, kAlignment);
      total_.fetch_sub(bytes);
      return absl::FailedPreconditionError(absl::StrFormat(
          "cpu: the host's allocator returned %p, alignment %d asked for", data,
          kAlignment));
    }
    ClassTotal(memory_class).fetch_add(bytes);
    return Buffer(this, static_cast<std::byte*>(data), bytes, memory_class);
  }

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override {
    return std::make_unique<CpuStream>(pool_.get());
  }

  absl::Status Copy(void* dst, const void* src, size_t bytes,
                    Stream&) override {
    if (bytes != 0) std::memmove(dst, src, bytes);
    return absl::OkStatus();
  }

  MemoryUse memory_use() const override {
    MemoryUse use;
    use.budget_bytes = budget_.load();
    use.total_bytes = total_.load();
    use.peak_bytes = peak_.load();
    for (size_t i = 0; i < by_class_.size(); ++i) {
      use.by_class[i] = by_class_[i].load();
    }
    return use;
  }

  void set_budget(size_t bytes) override { budget_.store(bytes); }

 private:
  std::atomic<size_t>& ClassTotal(MemoryClass memory_class) {
    return by_class_[static_cast<size_t>(memory_class)];
  }

  // Adds to the total, or refuses. Without a budget the limit is the machine's
  // memory: a clean refusal rather than the kernel's out-of-memory killer.
  absl::Status Charge(size_t bytes) {
    size_t total = total_.load();
    do {
      const size_t budget = budget_.load();
      const size_t limit = budget != 0 ? budget : info_.memory_bytes;
      if (total > limit || bytes > limit - total) {
        return absl::ResourceExhaustedError(absl::StrFormat(
            "cpu: %d bytes asked for, %d in use, %s %d", bytes, total,
            budget != 0 ? "budget" : "the machine's memory", limit));
      }
    } while (!total_.compare_exchange_weak(total, total + bytes));
    size_t peak = peak_.load();
    while (peak < total + bytes &&
           !peak_.compare_exchange_weak(peak, total + bytes)) {
    }
    return absl::OkStatus();
  }

  void Free(std::byte* data, size_t bytes, MemoryClass memory_class) override {
    allocator_.deallocate(allocator_.user, data, bytes, kAlignment);
    ClassTotal(memory_class).fetch_sub(bytes);
    total_.fetch_sub(bytes);
  }

  DeviceInfo info_;
  std::unique_ptr<ThreadPool> pool_;
  HostAllocator allocator_;
  std::atomic<size_t> budget_;
  std::atomic<size_t> total_{0};
  std::atomic<size_t> peak_{0};
  std::array<std::atomic<size_t>, kNumMemoryClasses> by_class_ = {};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(
    int num_threads, size_t budget_bytes, const HostAllocator* allocator) {
  HostAllocator chosen = {&RuntimeAllocate, &RuntimeDeallocate, nullptr};
  if (allocator != nullptr) {
    if (allocator->allocate == nullptr || allocator->deallocate == nullptr) {
      return absl::InvalidArgumentError(
          "cpu: the host's allocator needs both allocate and deallocate");
    }
    chosen = *allocator;
  }
  INLAY_ASSIGN_OR_RETURN(
      std::unique_ptr<ThreadPool> pool,
      ThreadPool::Create(num_threads == 0 ? UsableCores() : num_threads));
  return std::make_unique<CpuDevice>(std::move(pool), budget_bytes, chosen);
}

}  // namespace inlay
