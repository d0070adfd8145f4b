#include "memory/device/device.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

std::unique_ptr<Device> Cpu(size_t budget, int threads = 1,
                            const HostAllocator* allocator = nullptr) {
  auto device = CreateCpuDevice(threads, budget, allocator);
  EXPECT_TRUE(device.ok()) << device.status();
  return *std::move(device);
}

TEST(CpuDeviceTest, DescribesTheMachine) {
  const auto device = Cpu(0, 3);
  EXPECT_EQ(device->info().kind, DeviceKind::kCpu);
  EXPECT_EQ(device->info().num_threads, 3);
  EXPECT_GT(device->info().memory_bytes, size_t{1} << 20);
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  EXPECT_EQ(Cpu(0, 0)->info().num_threads, CPU_COUNT(&set));
  for (const int threads : {-1, ThreadPool::kMaxThreads + 1}) {
    EXPECT_EQ(CreateCpuDevice(threads, 0).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(CpuDeviceTest, AccountsByClassAndPeak) {
  const auto device = Cpu(1000);
  {
    const Buffer weights = *device->Allocate(600, MemoryClass::kWeights);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(weights.data()) % Device::kAlignment,
              0u);
    std::memset(weights.data(), 1, weights.bytes());
    const Buffer kv = *device->Allocate(400, MemoryClass::kKv);
    const MemoryUse use = device->memory_use();
    EXPECT_EQ(use.budget_bytes, 1000u);
    EXPECT_EQ(use.total_bytes, 1000u);
    EXPECT_EQ(use.by_class[0], 600u);
    EXPECT_EQ(use.by_class[1], 400u);
    EXPECT_EQ(use.by_class[2], 0u);
    const auto refused = device->Allocate(1, MemoryClass::kWorkspace);
    EXPECT_EQ(refused.status().message(),
              "cpu: 1 bytes asked for, 1000 in use, budget 1000");
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  }
  const MemoryUse use = device->memory_use();
  EXPECT_EQ(use.total_bytes, 0u);
  EXPECT_EQ(use.peak_bytes, 1000u);
  EXPECT_EQ(use.by_class[0] + use.by_class[1] + use.by_class[2], 0u);
}

TEST(CpuDeviceTest, ZeroBytesAreAnEmptyBuffer) {
  const auto device = Cpu(1);
  const auto buffer = device->Allocate(0, MemoryClass::kKv);
  ASSERT_TRUE(buffer.ok());
  EXPECT_TRUE(buffer->empty());
  EXPECT_EQ(buffer->bytes(), 0u);
}

// "hg" (the kernel's proc.rst) of the mapping that has `data`; nothing where
// the system does not say.
std::optional<bool> IsAdvisedHuge(const std::byte* data) {
  std::ifstream smaps("/proc/self/smaps");
  const auto at = reinterpret_cast<uintptr_t>(data);
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream words(line);
    if (words >> std::hex >> begin >> dash >> end && dash == '-') {
      inside = begin <= at && at < end;
    } else if (inside && line.starts_with("VmFlags:")) {
      return (line + " ").find(" hg ") != std::string::npos;
    }
  }
  return std::nullopt;
}

TEST(CpuDeviceTest, LargeMemoryMayHaveHugePages) {
  const auto device = Cpu(size_t{64} << 20);
  constexpr size_t kPage = size_t{2} << 20;
  auto small = device->Allocate(kPage / 2, MemoryClass::kWeights);
  auto large = device->Allocate(3 * kPage + 4096, MemoryClass::kWeights);
  ASSERT_TRUE(small.ok() && large.ok());
  EXPECT_EQ(device->memory_use().total_bytes, kPage / 2 + 3 * kPage + 4096);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large->data()) % kPage, 0u);
  std::memset(large->data(), 1, large->bytes());
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) return;
  const std::optional<bool> advised = IsAdvisedHuge(large->data());
  EXPECT_TRUE(advised.value_or(true));
  // Not beyond what was asked for.
  EXPECT_FALSE(IsAdvisedHuge(large->data() + 3 * kPage).value_or(false));
}

TEST(CpuDeviceTest, AbsurdSizesAreRefused) {
  const auto unlimited = Cpu(0);
  const auto budgeted = Cpu(4096);
  const Buffer held = *budgeted->Allocate(64, MemoryClass::kKv);
  for (const size_t bytes :
       {std::numeric_limits<size_t>::max(),
        std::numeric_limits<size_t>::max() - 63,
        size_t{std::numeric_limits<ptrdiff_t>::max()} + 1}) {
    for (Device* device : {unlimited.get(), budgeted.get()}) {
      EXPECT_EQ(device->Allocate(bytes, MemoryClass::kKv).status().code(),
                absl::StatusCode::kResourceExhausted);
    }
  }
  EXPECT_EQ(unlimited->memory_use().total_bytes, 0u);
  EXPECT_EQ(budgeted->memory_use().total_bytes, 64u);
}

TEST(CpuDeviceTest, TheBudgetMayChangeAtAnyTime) {
  const auto device = Cpu(100);
  Buffer held = *device->Allocate(80, MemoryClass::kKv);
  device->set_budget(50);
  EXPECT_FALSE(device->Allocate(1, MemoryClass::kKv).ok());
  device->set_budget(200);
  EXPECT_TRUE(device->Allocate(120, MemoryClass::kKv).ok());
  device->set_budget(0);
  EXPECT_TRUE(device->Allocate(5000, MemoryClass::kKv).ok());
  device->set_budget(50);
  held = Buffer();
  EXPECT_TRUE(device->Allocate(50, MemoryClass::kKv).ok());
}

TEST(CpuDeviceTest, BuffersMove) {
  const auto device = Cpu(0);
  Buffer a = *device->Allocate(64, MemoryClass::kKv);
  std::byte* data = a.data();
  Buffer b(std::move(a));
  EXPECT_TRUE(a.empty());  // NOLINT: moved-from is empty by contract
  EXPECT_EQ(b.data(), data);
  Buffer c = *device->Allocate(32, MemoryClass::kWeights);
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(device->memory_use().total_bytes, 64u);
  Buffer& self = c;
  c = std::move(self);
  EXPECT_EQ(c.data(), data);
  c = Buffer();
  EXPECT_EQ(device->memory_use().total_bytes, 0u);
}

TEST(CpuDeviceTest, ConcurrentAllocationsNeverExceedTheBudget) {
  const auto device = Cpu(10 * 64);
  std::atomic<int> granted{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        std::vector<Buffer> held;
        for (int j = 0; j < 5; ++j) {
          auto buffer = device->Allocate(64, MemoryClass::kWorkspace);
          if (!buffer.ok()) continue;
          granted.fetch_add(1);
          held.push_back(*std::move(buffer));
        }
        EXPECT_LE(device->memory_use().total_bytes, 10u * 64);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(granted.load(), 0);
  EXPECT_LE(device->memory_use().peak_bytes, 10u * 64);
  EXPECT_EQ(device->memory_use().total_bytes, 0u);
}

struct Recorder {
  alignas(64) std::byte memory[256];
  size_t offset = 0;
  bool refuse = false;
  std::vector<size_t> freed;

  static void* Allocate(void* user, size_t bytes, size_t alignment) {
    auto* self = static_cast<Recorder*>(user);
    EXPECT_EQ(alignment, 64u);
    EXPECT_LE(bytes, 128u);
    return self->refuse ? nullptr : self->memory + self->offset;
  }
  static void Deallocate(void* user, void*, size_t bytes, size_t) {
    static_cast<Recorder*>(user)->freed.push_back(bytes);
  }
};

TEST(CpuDeviceTest, UsesTheHostsAllocator) {
  Recorder recorder;
  const HostAllocator hooks = {&Recorder::Allocate, &Recorder::Deallocate,
                               &recorder};
  const auto device = Cpu(0, 1, &hooks);
  EXPECT_EQ(device->Allocate(100, MemoryClass::kKv)->data(), recorder.memory);
  EXPECT_EQ(recorder.freed, std::vector<size_t>{100});
  recorder.refuse = true;
  EXPECT_EQ(device->Allocate(100, MemoryClass::kKv).status().code(),
            absl::StatusCode::kAlreadyExists);
  recorder.refuse = false;
  recorder.offset = 16;
  EXPECT_EQ(device->Allocate(90, MemoryClass::kKv).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(recorder.freed, (std::vector<size_t>{100, 90}));
  EXPECT_EQ(device->memory_use().total_bytes, 0u);
  const HostAllocator half = {&Recorder::Allocate, nullptr, nullptr};
  EXPECT_EQ(CreateCpuDevice(1, 0, &half).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CpuDeviceTest, StreamsCopyAtOnce) {
  const auto device = Cpu(0, 2);
  const auto stream = *device->CreateStream();
  ASSERT_NE(stream->thread_pool(), nullptr);
  EXPECT_EQ(stream->thread_pool()->num_threads(), 2);
  char text[] = "abcdef";
  ASSERT_TRUE(device->Copy(text + 1, text, 4, *stream).ok());
  EXPECT_STREQ(text, "aabcdf");
  EXPECT_TRUE(device->Copy(nullptr, nullptr, 0, *stream).ok());
  EXPECT_TRUE(stream->Synchronize().ok());
}

TEST(CudaDeviceTest, SaysWhatIsMissing) {
  const auto device = CreateCudaDevice(0, 0);
  if (device.ok()) GTEST_SKIP() << "nothing is";
  EXPECT_EQ(device.status().code(), absl::StatusCode::kUnimplemented);
  const std::string message(device.status().message());
  EXPECT_EQ(message.rfind("cuda: ", 0), 0u) << message;
  EXPECT_NE(message.find("use the CPU"), std::string::npos) << message;
}

}  // namespace
}  // namespace inlay
