// Every family with quantised weights on a GPU, against float32 arithmetic on
// the weights they stand for; tokens of mixtures go to some of the experts.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

#include "tests/core/model/quantized_families.h"

namespace inlay {
namespace {

// What a matrix reads, what it makes and, in some kernels, its elements are
// rounded to bf16.
const double kBf16Layers = std::sqrt(3.0) * kBf16Move;

class QuantizedFamilyCuda : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto gpu = CreateCudaDevice(0, 0);
    if (!gpu.ok()) GTEST_SKIP() << "needs a GPU: " << gpu.status();
    gpu_ = *std::move(gpu);
  }

  std::unique_ptr<Device> gpu_;
};

TEST_P(QuantizedFamilyCuda, AsOnTheCpu) {
  const Json config =
      WithAllKeys(Wider(Open(GetParam(), "config.json").config));
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_K}) {
    SCOPED_TRACE(DTypeName(dtype));
    const DrawnFamily drawn = DrawFamily(config, dtype);
    const FamilyReference reference(drawn);
    const LogitErrors& moved = reference.moved;
    const auto model = LoadModel(drawn.files, *gpu_, {});
    ASSERT_TRUE(model.ok()) << model.status();
    for (const int64_t chunk : {1 << 20, 5, 2, 1}) {
      SCOPED_TRACE(::testing::Message() << "in chunks of " << chunk);
      const LogitErrors errors = ErrorsOf(
          RunChunks(**model, *gpu_, FamilyPrompt(), chunk), reference.want);
      ExpectRounded(errors, moved, kBf16Layers);
      std::printf(
          "%-18s %-4s by %-7d logits off by %.1e, at most %.1e; rounded to "
          "bf16 %.1e, %.1e\n",
          GetParam(), std::string(DTypeName(dtype)).c_str(),
          static_cast<int>(chunk), errors.rms, errors.worst, moved.rms,
          moved.worst);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, QuantizedFamilyCuda,
                         ::testing::ValuesIn(kDecoderNames),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace inlay
