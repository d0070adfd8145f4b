// The CPU as a device: host memory within a budget, and a pool of threads.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <utility>

#include "memory/device/deferred_frees.h"
#include "memory/device/device.h"
#include "memory/device/memory_account.h"
#include "memory/device/thread_pool.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

void* RuntimeAllocate(void*, size_t bytes, size_t alignment) {
  return ::operator new(bytes, std::align_val_t(alignment), std::nothrow);
}

void RuntimeDeallocate(void*, void* ptr, size_t, size_t alignment) {
  ::operator delete(ptr, std::align_val_t(alignment));
}

// A huge page of x86-64 and of most Arm systems.
constexpr size_t kHugePage = size_t{2} << 20;

// Asks the system for huge pages, whole ones only: what follows was not asked
// for. Refused, all is as it was.
void AdviseHugePages(void* data, size_t bytes) {
#ifdef MADV_HUGEPAGE
  madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
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

class CpuDevice final : public Device, public DeferredFrees {
 public:
  CpuDevice(std::unique_ptr<ThreadPool> pool, size_t budget_bytes,
            const HostAllocator* allocator)
      : pool_(std::move(pool)),
        allocator_(
            allocator == nullptr
                ? HostAllocator{&RuntimeAllocate, &RuntimeDeallocate, nullptr}
                : *allocator),
        own_memory_(allocator == nullptr),
        account_("cpu", PhysicalMemoryBytes(), budget_bytes) {
    info_.kind = DeviceKind::kCpu;
    info_.name = "cpu";
    info_.num_threads = pool_->num_threads();
    info_.memory_bytes = PhysicalMemoryBytes();
  }

  ~CpuDevice() override {
    while (FreeSome()) {
    }
  }

  const DeviceInfo& info() const override { return info_; }
  void StopThreads() override { pool_->Stop(); }

  absl::StatusOr<Buffer> Allocate(size_t bytes,
                                  MemoryClass memory_class) override {
    if (bytes == 0) return Buffer();
    absl::Status charged = account_.Charge(bytes, memory_class);
    while (!charged.ok() && FreeSome())
      charged = account_.Charge(bytes, memory_class);
    INLAY_RETURN_IF_ERROR(charged);
    const size_t alignment = AlignmentOf(bytes, memory_class);
    void* data = nullptr;
    do {
      data = allocator_.allocate(allocator_.user, bytes, alignment);
    } while (data == nullptr && FreeSome());
    if (data == nullptr) {
      account_.Refund(bytes, memory_class);
      return OutOfMemoryError(
          FormattedString("cpu: the allocator has no %d bytes", bytes));
    }
    if (reinterpret_cast<uintptr_t>(data) % alignment != 0) {
      allocator_.deallocate(allocator_.user, data, bytes, alignment);
      account_.Refund(bytes, memory_class);
      return absl::FailedPreconditionError(FormattedString(
          "cpu: the host's allocator returned %p, alignment %d asked for", data,
          alignment));
    }
    if (alignment == kHugePage) AdviseHugePages(data, bytes);
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

  MemoryUse memory_use() const override { return account_.use(); }
  void set_budget(size_t bytes) override { account_.set_budget(bytes); }

 private:
  void Free(std::byte* data, size_t bytes, MemoryClass memory_class) override {
    if (!Defer(data, bytes, memory_class)) FreeNow(data, bytes, memory_class);
  }
  void FreeNow(std::byte* data, size_t bytes,
               MemoryClass memory_class) override {
    allocator_.deallocate(allocator_.user, data, bytes,
                          AlignmentOf(bytes, memory_class));
    account_.Refund(bytes, memory_class);
  }
  // Whole pages within it; what a host's allocator has behind the addresses is
  // not known.
  bool Discard(std::byte* data, size_t bytes) override {
    if (!own_memory_) return false;
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGE_SIZE));
    const auto begin = reinterpret_cast<uintptr_t>(data);
    const uintptr_t first = (begin + page - 1) / page * page;
    const uintptr_t end = (begin + bytes) / page * page;
    return first >= end || madvise(reinterpret_cast<void*>(first), end - first,
                                   MADV_DONTNEED) == 0;
  }
  // Weights begin with a huge page where they are as large as one: who reads
  // one after another misses the TLB less. Nothing else does: what products
  // work on would fall into the same sets of the caches.
  size_t AlignmentOf(size_t bytes, MemoryClass memory_class) const {
    const bool huge = own_memory_ && memory_class == MemoryClass::kWeights &&
                      bytes >= kHugePage;
    return huge ? kHugePage : kAlignment;
  }

  DeviceInfo info_;
  std::unique_ptr<ThreadPool> pool_;
  HostAllocator allocator_;
  bool own_memory_;  // not the host's
  MemoryAccount account_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(
    int num_threads, size_t budget_bytes, const HostAllocator* allocator) {
  if (allocator != nullptr &&
      (allocator->allocate == nullptr || allocator->deallocate == nullptr)) {
    return absl::InvalidArgumentError(
        "cpu: the host's allocator needs both allocate and deallocate");
  }
  INLAY_ASSIGN_OR_RETURN(
      std::unique_ptr<ThreadPool> pool,
      ThreadPool::Create(num_threads == 0 ? ThreadPool::NumUsableCores()
                                          : num_threads));
  return std::make_unique<CpuDevice>(std::move(pool), budget_bytes, allocator);
}

}  // namespace inlay
