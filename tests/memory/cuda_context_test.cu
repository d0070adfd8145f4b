// What needs the CUDA runtime itself: the host's own use of the GPU, and a GPU
// that fails.
#include <gtest/gtest.h>

#include <cstdio>
#include <thread>
#include <utility>

#include "memory/device/cuda_driver.h"
#include "memory/device/cuda_stream.h"
#include "memory/device/device.h"
#include "tests/support/cuda_test_device.h"

namespace inlay {
namespace {

__global__ void StoreTo(int* address) { *address = 1; }

TEST(CudaContextTest, TheHostsContextComesBack) {
  INLAY_CUDA_DEVICE_OR_SKIP(device, 0);
  const auto driver = CudaDriver::Find();
  ASSERT_TRUE(driver.ok());
  // A thread that has not used CUDA has none, and none afterwards.
  std::thread([&] {
    CUcontext current = nullptr;
    ASSERT_EQ(driver->ctx_get_current(&current), CUDA_SUCCESS);
    ASSERT_EQ(current, nullptr);
    {
      const auto stream = device->CreateStream();
      const auto buffer = device->Allocate(64, MemoryClass::kKv);
      const auto range =
          device->ReserveRange(device->range_granularity(), MemoryClass::kKv);
      ASSERT_TRUE(stream.ok() && buffer.ok() && range.ok());
      ASSERT_TRUE((*range)->Map(0, device->range_granularity()).ok());
      ASSERT_TRUE(
          device->Copy(buffer->data(), (*range)->base(), 64, **stream).ok());
      ASSERT_TRUE((*stream)->Synchronize().ok());
      const DeviceScope scope(*device);
      driver->ctx_get_current(&current);
      EXPECT_NE(current, nullptr);
    }
    driver->ctx_get_current(&current);
    EXPECT_EQ(current, nullptr);
  }).join();
}

// Runs in a process of its own: its context is lost.
[[noreturn]] void LoseTheDevice() {
  const auto fail = [](const char* what) {
    std::fprintf(stderr, "%s\n", what);
    std::_Exit(1);
  };
  auto device = CreateCudaDevice(0, 0);
  auto stream = (*device)->CreateStream();
  auto buffer = (*device)->Allocate(64, MemoryClass::kKv);
  auto range =
      (*device)->ReserveRange((*device)->range_granularity(), MemoryClass::kKv);
  if (!(*range)->Map(0, (*device)->range_granularity()).ok()) fail("map");
  {
    const DeviceScope scope(**device);
    StoreTo<<<1, 1, 0, CudaStream::Of(**stream).handle()>>>(
        reinterpret_cast<int*>(8));
  }
  const absl::Status first = (*stream)->Synchronize();
  if (!absl::IsAborted(first)) fail("not reported by the wait for it");
  if (!absl::IsAborted((*device)->status())) fail("not remembered");
  if (!absl::IsAborted((*device)->Allocate(64, MemoryClass::kKv).status()))
    fail("not reported by an allocation");
  if (!absl::IsAborted((*device)->CreateStream().status()))
    fail("not reported by a stream");
  int value = 0;
  if (!absl::IsAborted(
          (*device)->Copy(&value, buffer->data(), sizeof(value), **stream)))
    fail("not reported by a copy");
  *range = nullptr;
  *buffer = Buffer();
  *stream = nullptr;
  if ((*device)->memory_use().total_bytes != 0) fail("not accounted for");
  *device = nullptr;
  std::_Exit(0);
}

TEST(CudaContextDeathTest, AFailedDeviceSaysSoAndCanBeDestroyed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  INLAY_CUDA_DEVICE_OR_SKIP(device, 0);
  EXPECT_EXIT(LoseTheDevice(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace inlay
