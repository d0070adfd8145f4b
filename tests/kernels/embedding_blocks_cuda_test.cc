// embedding of block formats on CUDA against the CPU's.
#if INLAY_HAS_CUDA

#include <random>
#include <vector>

#include "kernels/embedding/embedding.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/random_blocks.h"
#include "tests/support/rounded_levels.h"

namespace inlay {
namespace {

using namespace ::inlay::testing;  // NOLINT

TEST(EmbeddingBlocksCudaTest, IsThatOfTheCpu) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  TestCpu cpu(1);
  std::mt19937 rng(3);
  const std::vector<int32_t> ids = {0, 12, 13, 3, 1};
  const CudaBytes device_ids(ids);
  for (const BlockCodec* codec : BlockCodecs()) {
    SCOPED_TRACE(DTypeName(codec->dtype));
    const int64_t width = GetFormatInfo(codec->dtype).block_elements * 3;
    const auto table = RandomBlocks(*codec, 13 * 3, rng);
    const CudaBytes device_table(table);
    for (const bool accumulate : {false, true}) {
      const EmbeddingDesc desc{width, codec->dtype, DType::kF32};
      TestMatrix want(DType::kF32, 5, width, 3);
      if (accumulate) want.Randomize(rng);
      CudaTestMatrix y(want);
      EmbeddingParams params{MatrixView(const_cast<std::byte*>(table.data()),
                                        codec->dtype, 13, width),
                             ids.data(), 1.7f, accumulate, want.view()};
      ASSERT_TRUE(
          (*Select("embedding", EmbeddingTable(), desc, cpu.device->info()))
              ->run(desc, params, *cpu.stream)
              .ok());
      params.table.data = device_table.as<std::byte>();
      params.ids = device_ids.as<int32_t>();
      params.y = y.view();
      const auto row = Select("embedding", EmbeddingTable(), desc, cuda.info);
      ASSERT_TRUE(row.ok()) << row.status();
      ASSERT_TRUE((*row)->run(desc, params, *cuda.stream).ok());
      // Sums of a scale times a level and a minimum, taken apart elsewhere:
      // a few roundings of numbers below 60. Scales of blocks with rounded
      // levels are their largest value, here below 8.
      ExpectClose(
          y.Download(), [&](int64_t r, int64_t c) { return want(r, c); },
          [&](int64_t, int64_t) {
            return 4.0 * 60.0 * kUnitF32 +
                   1.7 * 8.0 * QuantLevelError(codec->dtype);
          });
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
