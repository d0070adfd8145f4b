// The GPU of tests that need one.
#ifndef INLAY_TESTS_SUPPORT_CUDA_TEST_DEVICE_H_
#define INLAY_TESTS_SUPPORT_CUDA_TEST_DEVICE_H_

#include <gtest/gtest.h>

#include <memory>

#include "memory/device/device.h"

// Declares `name`, a std::unique_ptr<Device> on GPU 0, or skips the test and
// says what is missing.
#define INLAY_CUDA_DEVICE_OR_SKIP(name, budget_bytes)           \
  auto name##_or_ = ::inlay::CreateCudaDevice(0, budget_bytes); \
  if (absl::IsUnimplemented(name##_or_.status()))               \
    GTEST_SKIP() << "needs a GPU: " << name##_or_.status();     \
  ASSERT_TRUE(name##_or_.ok()) << name##_or_.status();          \
  const std::unique_ptr<::inlay::Device> name = *std::move(name##_or_)

#endif  // INLAY_TESTS_SUPPORT_CUDA_TEST_DEVICE_H_
