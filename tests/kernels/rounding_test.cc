// Rows rounded to codes of 8 bits: the scalar row against codes made here, what
// is not finite, rows and groups without anything; the CUDA row has its bits,
// and those of a norm or an activation before it.
#include "kernels/rounding/rounding.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/kernel_test_util.h"
#if INLAY_HAS_CUDA
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rounding/rounding_cuda.h"
#include "tests/support/cuda_test_util.h"
#endif

namespace inlay {
namespace {

using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;
#if INLAY_HAS_CUDA
using ::inlay::testing::CudaBytes;
using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::TestCuda;
#endif

constexpr RowRounding kRoundings[] = {
    RowRounding::kFp8Rows, RowRounding::kFp8Groups, RowRounding::kInt8Rows};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Codes {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
};

TestMatrix RandomRows(DType dtype, int64_t rows, int64_t cols, unsigned seed) {
  std::mt19937 rng(seed);
  TestMatrix x(dtype, rows, cols, 8);
  x.Randomize(rng);
  return x;
}

Codes RoundOnCpu(TestMatrix x, RowRounding rounding) {
  TestCpu cpu;
  RoundingDesc desc;
  desc.width = x.view().cols();
  desc.input = desc.activation = x.view().dtype;
  const auto row =
      Select("rounding", RoundingTable(), desc, cpu.device->info());
  EXPECT_TRUE(row.ok()) << row.status();
  const int64_t rows = x.view().rows();
  Codes out;
  out.codes.assign(static_cast<size_t>(rows * desc.width), 0xaa);
  out.scales.assign(
      static_cast<size_t>(RoundingScales(rounding, rows, desc.width)), -1.0f);
  RoundingParams params;
  params.rounding = rounding;
  params.x = x.view();
  params.codes = MatrixView(reinterpret_cast<std::byte*>(out.codes.data()),
                            RoundingDType(rounding), rows, desc.width);
  params.scales = out.scales.data();
  EXPECT_TRUE((*row)->run(desc, params, *cpu.stream).ok());
  return out;
}

TEST(RoundingTest, CodesTimesScalesAreNear) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const TestMatrix x = RandomRows(dtype, 5, 384, 1);
    for (const RowRounding rounding : kRoundings) {
      const Codes got = RoundOnCpu(x, rounding);
      for (int64_t r = 0; r < 5; ++r) {
        for (int64_t c = 0; c < 384; ++c) {
          const auto code = got.codes[static_cast<size_t>(r * 384 + c)];
          const float scale = got.scales[static_cast<size_t>(
              rounding == RowRounding::kFp8Groups ? c / 128 * 5 + r : r)];
          const bool whole = rounding == RowRounding::kInt8Rows;
          const float value =
              (whole ? static_cast<float>(static_cast<int8_t>(code))
                     : F8E4M3ToF32(code)) *
              scale;
          // Half a step, of e4m3 2^-4 of the value or 2^-10 scales.
          const float step =
              whole ? 0.5f * scale
                    : std::max(std::abs(x(r, c)) * 0x1p-4f, scale * 0x1p-10f);
          ASSERT_NEAR(value, x(r, c), 1.001f * step) << r << " " << c;
        }
      }
    }
  }
}

TEST(RoundingTest, LargestOfARowIsTheLargestCode) {
  TestMatrix x = RandomRows(DType::kBF16, 2, 256, 2);
  x.Set(1, 200, -64.0f);
  EXPECT_EQ(RoundOnCpu(x, RowRounding::kInt8Rows).codes[256 + 200],
            static_cast<uint8_t>(-127));
  const Codes fp8 = RoundOnCpu(x, RowRounding::kFp8Rows);
  EXPECT_EQ(F8E4M3ToF32(fp8.codes[256 + 200]), -448.0f);
  EXPECT_EQ(fp8.scales[1], 64.0f / 448.0f);
}

TEST(RoundingTest, WhatIsNotFiniteStaysInItsScale) {
  TestMatrix x = RandomRows(DType::kF16, 4, 256, 3);
  for (int64_t c = 0; c < 256; ++c) x.Set(0, c, 0.0f);
  x.Set(1, 7, kNan);
  x.Set(2, 140, kInfinity);
  const Codes whole = RoundOnCpu(x, RowRounding::kInt8Rows);
  EXPECT_EQ(whole.scales[0], 0.0f);
  EXPECT_TRUE(std::isnan(whole.scales[1]));
  EXPECT_TRUE(std::isnan(whole.scales[2]));
  EXPECT_GT(whole.scales[3], 0.0f);
  const Codes groups = RoundOnCpu(x, RowRounding::kFp8Groups);
  const auto value = [&](int64_t r, int64_t c) {
    return F8E4M3ToF32(groups.codes[static_cast<size_t>(r * 256 + c)]);
  };
  EXPECT_EQ(value(0, 9), 0.0f);
  EXPECT_TRUE(std::isnan(value(1, 7)));
  EXPECT_TRUE(std::isfinite(value(1, 8)));
  EXPECT_TRUE(std::isnan(value(2, 141)));
  EXPECT_TRUE(std::isfinite(value(2, 100)));
}

TEST(RoundingTest, RefusesWhatItCannot) {
  TestCpu cpu;
  const auto refused = [&](const RoundingDesc& desc) {
    return absl::IsNotFound(
        Select("rounding", RoundingTable(), desc, cpu.device->info()).status());
  };
  RoundingDesc desc;
  desc.width = 256;
  EXPECT_FALSE(refused(desc));
  desc.width = 200;
  EXPECT_TRUE(refused(desc));
  desc.width = 256;
  desc.input = DType::kF32;
  EXPECT_TRUE(refused(desc));
  desc.activation = DType::kF32;
  EXPECT_TRUE(refused(desc));
}

#if INLAY_HAS_CUDA
Codes RoundOnCuda(TestCuda& cuda, const RoundingDesc& desc,
                  RoundingParams params) {
  const auto row = Select("rounding", RoundingTable(), desc, cuda.info);
  EXPECT_TRUE(row.ok()) << row.status();
  const int64_t rows = params.x.rows();
  Codes out;
  out.codes.resize(static_cast<size_t>(rows * desc.width));
  out.scales.resize(
      static_cast<size_t>(RoundingScales(params.rounding, rows, desc.width)));
  const CudaBytes codes(out.codes.size());
  const CudaBytes scales(4 * out.scales.size());
  params.codes = MatrixView(codes.as<std::byte>(),
                            RoundingDType(params.rounding), rows, desc.width);
  params.scales = scales.as<float>();
  EXPECT_TRUE((*row)->run(desc, params, *cuda.stream).ok());
  codes.Download(out.codes.data());
  scales.Download(out.scales.data());
  return out;
}

void ExpectEqual(const Codes& got, const Codes& want) {
  EXPECT_EQ(got.codes, want.codes);
  ASSERT_EQ(got.scales.size(), want.scales.size());
  for (size_t i = 0; i < got.scales.size(); ++i) {
    if (std::isnan(want.scales[i])) {
      EXPECT_TRUE(std::isnan(got.scales[i])) << i;
    } else {
      EXPECT_EQ(got.scales[i], want.scales[i]) << i;
    }
  }
}

constexpr int64_t kRoundedWidths[] = {128, 384, 640, 2176, 8320, 14336, 28672};

TEST(RoundingCudaTest, BitsOfTheCpu) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const int64_t width : kRoundedWidths) {
      TestMatrix x = RandomRows(dtype, 6, width, 4);
      x.Set(2, 7, 1000.0f);
      for (int64_t c = 0; c < width; ++c) x.Set(3, c, 0.0f);
      x.Set(4, 100, kInfinity);
      CudaTestMatrix on(x);
      RoundingDesc desc;
      desc.width = width;
      desc.input = desc.activation = dtype;
      for (const RowRounding rounding : kRoundings) {
        SCOPED_TRACE(::testing::Message()
                     << width << " " << static_cast<int>(rounding));
        RoundingParams params;
        params.rounding = rounding;
        params.x = on.view();
        ExpectEqual(RoundOnCuda(cuda, desc, params), RoundOnCpu(x, rounding));
      }
    }
  }
}

TEST(RoundingCudaTest, BitsOfANormBefore) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const int64_t width : kRoundedWidths) {
      for (const DType input : {DType::kF32, dtype}) {
        const TestMatrix x = RandomRows(input, 5, width, 5);
        const TestMatrix weight = RandomRows(DType::kF32, 1, width, 6);
        CudaTestMatrix x_on(x), weight_on(weight);
        CudaTestMatrix y(dtype, 5, width);
        const RmsNormDesc norm{width, input, dtype};
        const auto norm_row =
            Select("rms_norm", RmsNormTable(), norm, cuda.info);
        ASSERT_TRUE(norm_row.ok());
        const RmsNormParams norm_params{x_on.view(), weight_on.floats(), 1e-5f,
                                        y.view()};
        ASSERT_TRUE((*norm_row)->run(norm, norm_params, *cuda.stream).ok());
        RoundingDesc desc;
        desc.source = RoundingSource::kRmsNorm;
        desc.width = width;
        desc.input = input;
        desc.activation = dtype;
        for (const RowRounding rounding : kRoundings) {
          SCOPED_TRACE(::testing::Message()
                       << width << " " << static_cast<int>(rounding));
          RoundingParams params;
          params.rounding = rounding;
          params.x = x_on.view();
          params.weight = weight_on.floats();
          params.epsilon = 1e-5f;
          ExpectEqual(RoundOnCuda(cuda, desc, params),
                      RoundOnCpu(y.Download(), rounding));
        }
      }
    }
  }
}

TEST(RoundingCudaTest, BitsOfAnActivationBefore) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const Activation function :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
        Activation::kReluSquared, Activation::kClampedSilu,
        Activation::kLimitedSilu, Activation::kCappedSilu}) {
    for (const int64_t width : kRoundedWidths) {
      const TestMatrix x = RandomRows(DType::kBF16, 5, 2 * width, 7);
      CudaTestMatrix x_on(x);
      CudaTestMatrix y(DType::kBF16, 5, width);
      const float limit = HasLimit(function) ? 1.5f : 0.0f;
      const ActivationDesc apart{function, true, width, DType::kBF16, limit};
      const auto row =
          Select("activation", ActivationTable(), apart, cuda.info);
      ASSERT_TRUE(row.ok());
      ASSERT_TRUE(
          (*row)->run(apart, {x_on.view(), y.view()}, *cuda.stream).ok());
      RoundingDesc desc;
      desc.source = RoundingSource::kActivation;
      desc.width = width;
      desc.function = function;
      desc.limit = limit;
      for (const RowRounding rounding : kRoundings) {
        SCOPED_TRACE(::testing::Message()
                     << width << " " << static_cast<int>(rounding) << " "
                     << static_cast<int>(function));
        RoundingParams params;
        params.rounding = rounding;
        params.x = x_on.view();
        const Codes want = RoundOnCpu(y.Download(), rounding);
        ExpectEqual(RoundOnCuda(cuda, desc, params), want);
        // And where x lies.
        CudaTestMatrix in_place(x);
        const CudaBytes scales(4 * want.scales.size());
        params.x = in_place.view();
        params.codes = params.x;
        params.codes.dtype = RoundingDType(rounding);
        params.codes.dims[1] = width;
        params.scales = scales.as<float>();
        const auto rounds =
            Select("rounding", RoundingTable(), desc, cuda.info);
        ASSERT_TRUE((*rounds)->run(desc, params, *cuda.stream).ok());
        const TestMatrix& got = in_place.Download();
        for (int64_t r = 0; r < 5; ++r) {
          const std::string bits = got.RowBits(r);
          EXPECT_EQ(bits.substr(0, static_cast<size_t>(width)),
                    std::string(want.codes.begin() + r * width,
                                want.codes.begin() + (r + 1) * width));
        }
      }
    }
  }
}

TEST(RoundingCudaTest, TheWayBack) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  const TestMatrix x = RandomRows(DType::kBF16, 9, 640, 8);
  for (const RowRounding rounding : kRoundings) {
    const Codes rounded = RoundOnCpu(x, rounding);
    const CudaBytes codes(rounded.codes.data(), rounded.codes.size());
    const CudaBytes scales(rounded.scales.data(), 4 * rounded.scales.size());
    CudaTestMatrix y(DType::kF16, 4, 640);
    ASSERT_TRUE(RunWidenCuda({MatrixView(codes.as<std::byte>(),
                                         RoundingDType(rounding), 9, 640),
                              scales.as<float>()},
                             rounding, 3, y.view(), *cuda.stream)
                    .ok());
    const TestMatrix& got = y.Download();
    for (int64_t r = 0; r < 4; ++r) {
      for (int64_t c = 0; c < 640; ++c) {
        const auto code = rounded.codes[static_cast<size_t>((r + 3) * 640 + c)];
        const float scale = rounded.scales[static_cast<size_t>(
            rounding == RowRounding::kFp8Groups ? c / 128 * 9 + r + 3 : r + 3)];
        const float value = rounding == RowRounding::kInt8Rows
                                ? static_cast<float>(static_cast<int8_t>(code))
                                : F8E4M3ToF32(code);
        ASSERT_EQ(got(r, c), F16ToF32(F32ToF16(value * scale)));
      }
    }
  }
}
#endif

}  // namespace
}  // namespace inlay
