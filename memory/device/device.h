// Device: where tensors live and kernels run. Allocation within a budget,
// accounted by class; streams order the work. Knows nothing of models, requests
// or what the bytes mean.
#ifndef INLAY_MEMORY_DEVICE_DEVICE_H_
#define INLAY_MEMORY_DEVICE_DEVICE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace inlay {

class ThreadPool;

enum class DeviceKind : uint8_t { kCpu, kCuda };

// What kernel tables select by. Pure data.
struct DeviceInfo {
  DeviceKind kind = DeviceKind::kCpu;
  std::string name;
  int sm = 0;  // CUDA compute capability * 10 (90 for Hopper); 0 on CPU
  int num_threads = 1;
  size_t memory_bytes = 0;  // physical memory of the device
};

// What an allocation is for; the accounts are kept apart.
enum class MemoryClass : uint8_t { kWeights, kKv, kWorkspace };
inline constexpr int kNumMemoryClasses = 3;

struct MemoryUse {
  size_t budget_bytes = 0;  // 0: no budget
  size_t total_bytes = 0;
  size_t peak_bytes = 0;
  std::array<size_t, kNumMemoryClasses> by_class = {};
};

// The host's allocator. `allocate` returns null when out of memory; both may be
// called from any thread.
struct HostAllocator {
  void* (*allocate)(void* user, size_t bytes, size_t alignment) = nullptr;
  void (*deallocate)(void* user, void* ptr, size_t bytes,
                     size_t alignment) = nullptr;
  void* user = nullptr;
};

class Device;

// Owns one device allocation; gives it back to its device, which must outlive
// it. Move-only.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device* device, std::byte* data, size_t bytes,
         MemoryClass memory_class)
      : device_(device), data_(data), bytes_(bytes), class_(memory_class) {}
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool empty() const { return data_ == nullptr; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  MemoryClass class_ = MemoryClass::kWorkspace;
};

// An ordered queue of work on a device. The CPU's runs work at once, on its
// pool, in the calling thread's time.
class Stream {
 public:
  virtual ~Stream() = default;
  // Waits for everything queued; returns the first error of it.
  virtual absl::Status Synchronize() = 0;
  // The pool CPU kernels run on; null on other devices.
  virtual ThreadPool* thread_pool() { return nullptr; }
};

// Thread-safe.
class Device {
 public:
  static constexpr size_t kAlignment = 64;

  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // 64-byte aligned, contents unspecified. RESOURCE_EXHAUSTED when the budget
  // or the device has no room (never above budget).
  virtual absl::StatusOr<Buffer> Allocate(size_t bytes,
                                          MemoryClass memory_class) = 0;
  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream() = 0;
  // Queues a copy between any two of {host, this device}. Both ranges must stay
  // valid until the stream has passed it.
  virtual absl::Status Copy(void* dst, const void* src, size_t bytes,
                            Stream& stream) = 0;
  virtual MemoryUse memory_use() const = 0;
  // 0 lifts the limit. A budget below what is in use refuses further
  // allocations until enough is given back.
  virtual void set_budget(size_t bytes) = 0;

 private:
  friend class Buffer;
  virtual void Free(std::byte* data, size_t bytes,
                    MemoryClass memory_class) = 0;
};

// The CPU. `num_threads` 0 means one per core; 1 starts no thread. `allocator`
// null uses the C++ runtime's.
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(
    int num_threads, size_t budget_bytes,
    const HostAllocator* allocator = nullptr);

}  // namespace inlay

#endif  // INLAY_MEMORY_DEVICE_DEVICE_H_
