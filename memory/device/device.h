// Device: where tensors live and kernels run. Allocation within a budget,
// accounted by class; streams order the work. Knows nothing of models, requests
// or what the bytes mean.
#ifndef INLAY_MEMORY_DEVICE_DEVICE_H_
#define INLAY_MEMORY_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "memory/device/address_range.h"
#include "memory/device/device_info.h"
#include "memory/device/stream.h"

namespace inlay {

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

// Thread-safe.
class Device {
 public:
  static constexpr size_t kAlignment = 64;

  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // Not OK (DeviceLostError) once the device has failed: every later call says
  // so, and what is left can only be destroyed.
  virtual absl::Status status() const { return absl::OkStatus(); }
  // Ends the device's own threads: what is still computed runs on its callers'.
  virtual void StopThreads() {}
  // 64-byte aligned, contents unspecified. RESOURCE_EXHAUSTED when the budget
  // or the device has no room (never above budget).
  virtual absl::StatusOr<Buffer> Allocate(size_t bytes,
                                          MemoryClass memory_class) = 0;
  // Host memory that copies to and from this device are fastest with, and the
  // only one they do not wait for; outside the budget where it is not the
  // device's own.
  virtual absl::StatusOr<Buffer> AllocateStaging(size_t bytes) {
    return Allocate(bytes, MemoryClass::kWorkspace);
  }
  // Whether the host can follow pointers to this device's memory.
  bool host_addressable() const { return info().kind == DeviceKind::kCpu; }
  // 0: the device has no address ranges, memory comes by Allocate() only.
  virtual size_t range_granularity() const { return 0; }
  // Addresses without memory, which is accounted as `memory_class` as it comes;
  // `bytes` a multiple of range_granularity(). UNIMPLEMENTED where that is 0.
  virtual absl::StatusOr<std::unique_ptr<AddressRange>> ReserveRange(
      size_t bytes, MemoryClass memory_class);
  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream() = 0;
  virtual absl::StatusOr<std::unique_ptr<StreamEvent>> CreateEvent() {
    return std::make_unique<StreamEvent>();
  }
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
  friend class DeviceScope;
  virtual void Free(std::byte* data, size_t bytes,
                    MemoryClass memory_class) = 0;
  virtual void* Enter() { return nullptr; }
  virtual void Leave(void*) {}
};

// While it lives, kernels that this thread launches go to the device: held
// around every run() of a kernel row. What the host had chosen comes back.
class DeviceScope {
 public:
  explicit DeviceScope(Device& device)
      : device_(device), previous_(device.Enter()) {}
  ~DeviceScope() { device_.Leave(previous_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  Device& device_;
  void* previous_;
};

// The CPU. `num_threads` 0 means one per core; 1 starts no thread. `allocator`
// null uses the C++ runtime's.
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(
    int num_threads, size_t budget_bytes,
    const HostAllocator* allocator = nullptr);

// GPU number `ordinal` as the driver counts them; the driver is looked for now,
// at run time. `num_threads`: DeviceInfo's, of the host, for whoever prepares
// its work; 0: one per core. UNIMPLEMENTED says what is missing: CUDA in this
// build, a driver, a new enough one, a GPU, its compute capability (8.0);
// INVALID_ARGUMENT for an ordinal there is not.
absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(int ordinal,
                                                         size_t budget_bytes,
                                                         int num_threads = 0);

}  // namespace inlay

#endif  // INLAY_MEMORY_DEVICE_DEVICE_H_
