// What the kernel tests share: tensors of random values with poisoned
// surroundings, a CPU to run on, and comparison against a float64 reference
// that names the worst element. Header only.
#ifndef INLAY_TESTS_SUPPORT_KERNEL_TEST_UTIL_H_
#define INLAY_TESTS_SUPPORT_KERNEL_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "memory/device/device.h"
#include "memory/dtype.h"
#include "memory/tensor.h"

namespace inlay::testing {

// Half the distance between 1 and the next float32: the relative error of one
// rounding.
inline constexpr double kUnitF32 = 0x1p-24;

// What KV is stored as.
inline constexpr DType kKvTypes[] = {DType::kF32, DType::kF16,    DType::kBF16,
                                     DType::kI8,  DType::kF8E4M3, DType::kKvQ4};

inline void PutFloat(DType dtype, std::byte* row, int64_t i, float value) {
  const uint16_t bits =
      dtype == DType::kF16 ? F32ToF16(value) : F32ToBF16(value);
  if (dtype == DType::kF32) {
    std::memcpy(row + 4 * i, &value, 4);
  } else {
    std::memcpy(row + 2 * i, &bits, 2);
  }
}

inline float GetFloat(DType dtype, const std::byte* row, int64_t i) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, row + 4 * i, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, row + 2 * i, 2);
  return dtype == DType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
}

// A matrix of a plain float type with `pad` elements between its rows. All of
// it, the padding too, starts as NaN, so that what a kernel reads beside its
// input or fails to write shows.
class TestMatrix {
 public:
  TestMatrix() = default;
  TestMatrix(DType dtype, int64_t rows, int64_t cols, int64_t pad = 0)
      : dtype_(dtype),
        rows_(rows),
        cols_(cols),
        stride_(RowBytes(dtype, static_cast<size_t>(cols + pad))),
        storage_(static_cast<size_t>(rows) * stride_) {
    const auto elements =
        static_cast<int64_t>(storage_.size() / RowBytes(dtype, 1));
    for (int64_t i = 0; i < elements; ++i) {
      PutFloat(dtype, storage_.data(), i,
               std::numeric_limits<float>::quiet_NaN());
    }
  }

  // Fills the elements (not the padding) with N(0, deviation^2).
  TestMatrix& Randomize(std::mt19937& rng, float deviation = 1.0f) {
    std::normal_distribution<float> normal(0.0f, deviation);
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) Set(r, c, normal(rng));
    }
    return *this;
  }

  void Set(int64_t r, int64_t c, float value) {
    PutFloat(dtype_, Row(r), c, value);
  }
  float operator()(int64_t r, int64_t c) const {
    return GetFloat(dtype_, storage_.data() + r * Stride(), c);
  }
  TensorView view() {
    return {storage_.data(), dtype_, 2, {rows_, cols_}, stride_};
  }
  const float* floats() { return reinterpret_cast<const float*>(Row(0)); }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

  // The bytes of row `r`, for comparisons bit by bit.
  std::string RowBits(int64_t r) const {
    return std::string(
        reinterpret_cast<const char*>(storage_.data() + r * Stride()),
        RowBytes(dtype_, static_cast<size_t>(cols_)));
  }
  bool PaddingIsPoisoned() const {
    const auto width = static_cast<int64_t>(stride_ / RowBytes(dtype_, 1));
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = cols_; c < width; ++c) {
        if (!std::isnan((*this)(r, c))) return false;
      }
    }
    return true;
  }

 private:
  std::byte* Row(int64_t r) { return storage_.data() + r * Stride(); }
  int64_t Stride() const { return static_cast<int64_t>(stride_); }

  DType dtype_ = DType::kF32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  size_t stride_ = 0;
  std::vector<std::byte> storage_;
};

// A CPU of `num_threads` and a stream on it.
struct TestCpu {
  explicit TestCpu(int num_threads = 2) {
    auto created = CreateCpuDevice(num_threads, 0);
    EXPECT_TRUE(created.ok()) << created.status();
    device = *std::move(created);
    stream = *device->CreateStream();
  }
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
};

// Calls fn(row) for each row of `table` that serves `desc` on `cpu`; at least
// one must.
template <typename Row, typename Desc, typename Fn>
void ForEachCpuRow(absl::Span<const Row> table, const Desc& desc,
                   const TestCpu& cpu, Fn fn) {
  int served = 0;
  for (const Row& row : table) {
    if (row.device != DeviceKind::kCpu) continue;
    if (row.refuses != nullptr &&
        row.refuses(desc, cpu.device->info()) != nullptr) {
      continue;
    }
    SCOPED_TRACE(std::string(row.name));
    ++served;
    fn(row);
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(served, 0);
}

// Runs a row with a workspace of what it asks for, beside which is what no row
// may touch.
template <typename Row, typename Desc, typename Params>
void RunWithWorkspace(const Row& row, const Desc& desc, Params params,
                      TestCpu& cpu) {
  constexpr size_t kGuard = 64;
  const size_t bytes = row.workspace_bytes == nullptr
                           ? 0
                           : row.workspace_bytes(desc, params.q.rows());
  std::vector<uint64_t> workspace((bytes + kGuard) / sizeof(uint64_t), ~0ull);
  params.workspace = workspace.data();
  ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
  for (size_t i = (bytes + 7) / sizeof(uint64_t); i < workspace.size(); ++i) {
    EXPECT_EQ(workspace[i], ~0ull);
  }
}

// Holds `actual` against expected(r, c) -> double with the absolute tolerance
// tolerance(r, c); reports the element that misses by the largest factor.
template <typename Expected, typename Tolerance>
void ExpectClose(const TestMatrix& actual, Expected expected,
                 Tolerance tolerance) {
  double worst = 0.0;
  std::string report;
  for (int64_t r = 0; r < actual.rows(); ++r) {
    for (int64_t c = 0; c < actual.cols(); ++c) {
      const double want = expected(r, c);
      const double error = std::abs(actual(r, c) - want);
      const double ratio = error / tolerance(r, c);
      if (ratio <= worst) continue;  // NaN goes on
      worst =
          std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
      report = "worst element [" + std::to_string(r) + ", " +
               std::to_string(c) + "]: " + std::to_string(actual(r, c)) +
               ", expected " + std::to_string(want) + ", " +
               std::to_string(ratio) + " tolerances away";
      if (std::isinf(worst)) break;
    }
  }
  EXPECT_LE(worst, 1.0) << report;
  EXPECT_TRUE(actual.PaddingIsPoisoned()) << "wrote between the rows";
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_KERNEL_TEST_UTIL_H_
