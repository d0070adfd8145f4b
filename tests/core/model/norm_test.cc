// Norms with no weights of their own.
#include "core/model/layers/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "memory/device/device.h"

namespace inlay {
namespace {

// What converts where there is no norm changes no bit, whatever the row's size.
TEST(NormTest, ConvertsExactly) {
  const auto device = *CreateCpuDevice(1, 0);
  const auto stream = *device->CreateStream();
  constexpr int64_t kWidth = 70;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (const RmsNormRow& row : RmsNormTable()) {
    if (row.device != DeviceKind::kCpu) continue;
    SCOPED_TRACE(row.name);
    for (const float size : {0.0f, 0x1p-40f, 1.0f, 1e4f, 0x1p34f}) {
      std::vector<float> x(kWidth);
      for (float& value : x) value = size * normal(random);
      std::vector<float> y(kWidth, NAN);
      const std::vector<float> weight(kWidth, kConvertWeight);
      RmsNormDesc desc;
      desc.width = kWidth;
      RmsNormParams params;
      params.x = MatrixView(reinterpret_cast<std::byte*>(x.data()), DType::kF32,
                            1, kWidth);
      params.y = MatrixView(reinterpret_cast<std::byte*>(y.data()), DType::kF32,
                            1, kWidth);
      params.weight = weight.data();
      params.epsilon = kConvertEpsilon;
      ASSERT_TRUE(row.run(desc, params, *stream).ok());
      ASSERT_TRUE(stream->Synchronize().ok());
      EXPECT_EQ(x, y) << "size " << size;
    }
  }
}

}  // namespace
}  // namespace inlay
