// What the tests of CUDA kernels share: a stream on the first device, copies of
// host tensors on it. Header only; there is something in it only where the CUDA
// backend is built.
#ifndef INLAY_TESTS_SUPPORT_CUDA_TEST_UTIL_H_
#define INLAY_TESTS_SUPPORT_CUDA_TEST_UTIL_H_

#if INLAY_HAS_CUDA

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "memory/device/cuda_stream.h"
#include "tests/support/kernel_test_util.h"

// At the head of a test that needs a device.
#define INLAY_REQUIRE_CUDA() \
  if (!::inlay::testing::TestCuda::Present()) GTEST_SKIP() << "no CUDA device"

namespace inlay::testing {

// The relative error of one rounding to `dtype`.
inline double UnitOf(DType dtype) {
  return dtype == DType::kF32   ? kUnitF32
         : dtype == DType::kF16 ? 0x1p-11
                                : 0x1p-8;
}

// What a value of about `want` may be off for having been rounded to `dtype`
// (below the normal numbers of f16 the step is constant).
inline double Rounding(DType dtype, double want) {
  return UnitOf(dtype) * std::abs(want) +
         (dtype == DType::kF16 ? 0x1p-25 : 1e-37);
}

class TestCuda {
 public:
  static bool Present() {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
  }

  // `sm`: what kernels take the device for, where it isn't 0; else the
  // environment's INLAY_TEST_SM, so that a whole suite can run as it would on
  // an older GPU.
  explicit TestCuda(int sm = 0) {
    cudaDeviceProp properties;
    EXPECT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
    EXPECT_EQ(cudaStreamCreate(&handle_), cudaSuccess);
    info.kind = DeviceKind::kCuda;
    info.name = "cuda";
    info.sm = properties.major * 10 + properties.minor;
    if (const char* taken_for = std::getenv("INLAY_TEST_SM")) {
      info.sm = std::atoi(taken_for);
    }
    if (sm != 0) info.sm = sm;
    info.num_sms = properties.multiProcessorCount;
    stream = std::make_unique<CudaStream>(
        handle_, properties.multiProcessorCount, info.sm);
  }
  ~TestCuda() {
    EXPECT_EQ(cudaStreamSynchronize(handle_), cudaSuccess);
    stream.reset();
    cudaStreamDestroy(handle_);
  }
  TestCuda(const TestCuda&) = delete;
  TestCuda& operator=(const TestCuda&) = delete;

  DeviceInfo info;
  std::unique_ptr<CudaStream> stream;

 private:
  cudaStream_t handle_ = nullptr;
};

// Bytes on the device, copied from the host and back.
class CudaBytes {
 public:
  CudaBytes() = default;
  CudaBytes(const void* from, size_t bytes) : bytes_(bytes) {
    EXPECT_EQ(cudaMalloc(&data_, bytes), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, from, bytes, cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  // All ones: NaN, whatever the type.
  explicit CudaBytes(size_t bytes) : bytes_(bytes) {
    EXPECT_EQ(cudaMalloc(&data_, bytes), cudaSuccess);
    EXPECT_EQ(cudaMemset(data_, 0xff, bytes), cudaSuccess);
  }
  template <typename T>
  explicit CudaBytes(const std::vector<T>& from)
      : CudaBytes(from.data(), from.size() * sizeof(T)) {}
  ~CudaBytes() { cudaFree(data_); }
  CudaBytes(const CudaBytes&) = delete;
  CudaBytes& operator=(const CudaBytes&) = delete;

  // Waits for the device's work; its first error fails the test.
  void Download(void* to) const {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(to, data_, bytes_, cudaMemcpyDeviceToHost),
              cudaSuccess);
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// A TestMatrix, padding included, on the device.
class CudaTestMatrix {
 public:
  explicit CudaTestMatrix(TestMatrix host)
      : host_(std::move(host)),
        device_(host_.view().data, host_.view().bytes()) {}
  CudaTestMatrix(DType dtype, int64_t rows, int64_t cols, int64_t pad = 0)
      : CudaTestMatrix(TestMatrix(dtype, rows, cols, pad)) {}

  TensorView view() {
    TensorView view = host_.view();
    view.data = device_.as<std::byte>();
    return view;
  }
  const float* floats() { return device_.as<float>(); }
  // What is on the device now.
  const TestMatrix& Download() {
    device_.Download(host_.view().data);
    return host_;
  }

 private:
  TestMatrix host_;
  CudaBytes device_;
};

// The CUDA rows of `table` that serve `desc`; at least one must.
template <typename Row, typename Desc, typename Fn>
void ForEachCudaRow(absl::Span<const Row> table, const Desc& desc,
                    const TestCuda& cuda, Fn fn) {
  int served = 0;
  for (const Row& row : table) {
    if (row.device != DeviceKind::kCuda || row.min_sm > cuda.info.sm ||
        (row.refuses != nullptr && row.refuses(desc, cuda.info) != nullptr)) {
      continue;
    }
    SCOPED_TRACE(std::string(row.name));
    ++served;
    fn(row);
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(served, 0);
}

}  // namespace inlay::testing

#endif  // INLAY_HAS_CUDA

#endif  // INLAY_TESTS_SUPPORT_CUDA_TEST_UTIL_H_
