#include "core/formats/sinusoid_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/formats/format_test_util.h"
#include "tests/support/memory_weights.h"

namespace inlay {
namespace {

using ::testing::ElementsAre;

class SinusoidSourceTest : public ::testing::Test {
 protected:
  // Beside a tensor of one byte, and one that has the computed one's name.
  absl::StatusOr<std::shared_ptr<const WeightSource>> Present(
      const Json& config) {
    const std::byte bytes[] = {std::byte{1}};
    auto stored = std::make_shared<MemoryWeights>(true);
    for (const char* name : {"a", kComputedPositions.data(), "z"}) {
      stored->Add(name, DType::kI8, {1}, bytes);
    }
    return PresentSinusoids(config, std::move(stored));
  }

  std::vector<float> Read(const WeightSource& source, uint64_t first,
                          size_t count) {
    const WeightInfo* info = source.Find(kComputedPositions);
    EXPECT_NE(info, nullptr);
    std::vector<float> values(count);
    const absl::Status status = source.Read(
        *info, first * sizeof(float),
        {reinterpret_cast<std::byte*>(values.data()), count * sizeof(float)});
    EXPECT_TRUE(status.ok()) << status;
    return values;
  }
};

TEST_F(SinusoidSourceTest, OfXglmAlone) {
  const auto same = Present({{"model_type", "opt"}});
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ((*same)->weights().size(), 3u);
  EXPECT_EQ((*same)->Find(kComputedPositions)->bytes, 1u);
}

// Sines of a row's positions, then cosines; frequencies from 1 to 1 / 10000.
TEST_F(SinusoidSourceTest, RowsOfPositions) {
  const auto source = Present({{"model_type", "xglm"},
                               {"max_position_embeddings", 5},
                               {"d_model", 6},
                               {"pad_token_id", 4}});
  ASSERT_TRUE(source.ok()) << source.status();
  std::vector<std::string> names;
  for (const WeightInfo& info : (*source)->weights()) {
    names.push_back(info.name);
  }
  EXPECT_THAT(names, ElementsAre("a", kComputedPositions, "z"));
  const WeightInfo* info = (*source)->Find(kComputedPositions);
  EXPECT_THAT(info->shape, ElementsAre(7, 6));
  EXPECT_EQ(info->dtype, DType::kF32);
  EXPECT_EQ(info->bytes, 7u * 6 * 4);
  EXPECT_EQ((*source)->Mapped(*info), nullptr);
  const std::vector<float> all = Read(**source, 0, 42);
  for (int row = 0; row < 7; ++row) {
    for (int column = 0; column < 6; ++column) {
      const double angle = row * std::pow(10000.0, -(column % 3) / 2.0);
      const double value = row == 4     ? 0.0  // pad_token_id
                           : column < 3 ? std::sin(angle)
                                        : std::cos(angle);
      EXPECT_NEAR(all[static_cast<size_t>(row * 6 + column)], value, 1e-6);
    }
  }
  EXPECT_THAT(Read(**source, 13, 2), ElementsAre(all[13], all[14]));
  // Not on elements.
  std::byte three[3];
  ASSERT_TRUE((*source)->Read(*info, 54, three).ok());
  EXPECT_EQ(std::memcmp(three,
                        reinterpret_cast<const std::byte*>(all.data()) + 54, 3),
            0);
  std::byte one[1];
  EXPECT_TRUE((*source)->Read(*(*source)->Find("z"), 0, one).ok());
}

TEST_F(SinusoidSourceTest, OddWidthsAndNoPadding) {
  const auto source = Present({{"model_type", "xglm"},
                               {"max_position_embeddings", 1},
                               {"d_model", 5},
                               {"pad_token_id", nullptr}});
  ASSERT_TRUE(source.ok()) << source.status();
  const std::vector<float> all = Read(**source, 0, 15);
  EXPECT_NEAR(all[5], std::sin(1.0), 1e-6);
  EXPECT_NEAR(all[6], std::sin(1e-4), 1e-6);
  EXPECT_NEAR(all[7], std::cos(1.0), 1e-6);
  EXPECT_EQ(all[9], 0.0f);
}

TEST_F(SinusoidSourceTest, SizesOutOfRange) {
  ExpectError(Present({{"model_type", "xglm"}, {"d_model", 1}}).status(),
              kInvalid, "d_model");
  ExpectError(Present({{"model_type", "xglm"}, {"max_position_embeddings", 0}})
                  .status(),
              kInvalid, "max_position_embeddings");
}

}  // namespace
}  // namespace inlay
