// Every encoder with quantised weights on a GPU, against float32 arithmetic on
// the weights they stand for.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

#include "tests/core/model/quantized_encoders.h"

namespace inlay {
namespace {

// As quantized_families_cuda_test.cc has it. That states are bf16 in the end
// adds one such rounding to those of some dozen matrices.
const double kBf16States = std::sqrt(3.0) * kBf16Move;

struct Format {
  DType dtype;
  // Of batch-invariant models, whose kernels round weights, scales and minima
  // to bf16: relative to the weights' root mean square
  // (kernels/gemm/quantised/QUANTISED.md, "One order of sums").
  double rounds;
};
constexpr Format kFormats[] = {{DType::kQ8_0, 0.0024}, {DType::kQ4_K, 0.0043}};

class QuantizedEncoderCuda : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto gpu = CreateCudaDevice(0, 0);
    if (!gpu.ok()) GTEST_SKIP() << "needs a GPU: " << gpu.status();
    gpu_ = *std::move(gpu);
  }

  std::unique_ptr<Device> gpu_;
};

TEST_P(QuantizedEncoderCuda, AsOnTheCpu) {
  const Json config = QuantizedEncoderConfig(GetParam(), 256);
  const LogitErrors moved = StatesMovedByBf16(config, true);
  for (const auto& [dtype, rounds] : kFormats) {
    SCOPED_TRACE(DTypeName(dtype));
    const DrawnFamily drawn = DrawFamily(config, dtype);
    const auto want = RunTexts(drawn.files, "cpu_scalar");
    for (const bool batch_invariant : {false, true}) {
      ModelLoadOptions options;
      options.batch_invariant = batch_invariant;
      const auto model = LoadModel(drawn.files, *gpu_, options);
      ASSERT_TRUE(model.ok()) << model.status();
      const auto alone = RunTexts(**model, *gpu_, false);
      const auto together = RunTexts(**model, *gpu_, true);
      if (batch_invariant) {
        EXPECT_TRUE(alone == together) << "batched";
      }
      for (const auto* got : {&alone, &together}) {
        SCOPED_TRACE(::testing::Message()
                     << (got == &alone ? "alone" : "together")
                     << (batch_invariant ? ", batch-invariant" : ""));
        const LogitErrors errors = ErrorsOf(Joined(*got), Joined(want));
        ExpectRounded(
            errors, moved,
            batch_invariant ? std::hypot(kBf16States, rounds) : kBf16States);
        std::printf(
            "%-27s %-4s %-8s states off by %.1e, at most %.1e; rounded to "
            "bf16 %.1e, %.1e\n",
            GetParam(), std::string(DTypeName(dtype)).c_str(),
            got == &alone ? "alone" : "together", errors.rms, errors.worst,
            moved.rms, moved.worst);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, QuantizedEncoderCuda,
                         ::testing::ValuesIn(kEncoderNames),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace inlay
