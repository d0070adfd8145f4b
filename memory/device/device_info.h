// What a device is and how much of it is in use: plain data.
#ifndef INLAY_MEMORY_DEVICE_DEVICE_INFO_H_
#define INLAY_MEMORY_DEVICE_DEVICE_INFO_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace inlay {

enum class DeviceKind : uint8_t { kCpu, kCuda };

// What kernel tables select by. Pure data.
struct DeviceInfo {
  DeviceKind kind = DeviceKind::kCpu;
  std::string name;
  int sm = 0;       // CUDA compute capability * 10 (90 for Hopper); 0 on CPU
  int num_sms = 0;  // CUDA multiprocessors; 0 on CPU
  int num_threads = 1;
  size_t memory_bytes = 0;  // physical memory of the device
};

// What an allocation is for; the accounts are kept apart.
// kStaging is host memory and in no account of a device's.
enum class MemoryClass : uint8_t { kWeights, kKv, kWorkspace, kStaging };
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

}  // namespace inlay

#endif  // INLAY_MEMORY_DEVICE_DEVICE_INFO_H_
